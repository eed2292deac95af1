// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/schema"
)

// result is the last event of a run; see docs/machine-output.md.
type result struct {
	Node, Endpoint, Token string
	CACertHashes          []string
	Seconds               float64
	Files                 []struct{ Path, Change string }
}

// tells runs slipway with -o json. Every event must match the schema.
func (m machine) tells(args ...string) result {
	m.Helper()
	events, err := schema.Events()
	if err != nil {
		m.Fatal(err)
	}
	out := []byte(m.must(append(append([]string{"slipway"}, args...), "-o", "json")...))
	if _, err := events.CheckLines(out); err != nil {
		m.Error(err)
	}
	var r result
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if err := json.Unmarshal(lines[len(lines)-1], &r); err != nil {
		m.Fatal(err)
	}
	return r
}

// initForJoin creates a cluster, and returns a worker's join arguments from init's result.
func (m machine) initForJoin(config string) []string {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	r := m.tells("init", "--config", "/root/slipway.yaml", "--timeline", "/root/run.json")
	m.Logf("init took %.1fs and changed %d files", r.Seconds, len(r.Files))
	written := func(path string) bool {
		return slices.ContainsFunc(r.Files, func(f struct{ Path, Change string }) bool { return f.Path == path && f.Change == "created" })
	}
	for _, path := range []string{"/etc/kubernetes/admin.conf", "/etc/kubernetes/manifests/etcd.yaml", "/var/lib/kubelet/config.yaml"} {
		if !written(path) {
			m.Errorf("%s is missing from the files of the result", path)
		}
	}
	m.hasTimeline("/root/run.json")
	args := []string{r.Endpoint, "--token", r.Token, "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors}
	for _, hash := range r.CACertHashes {
		args = append(args, "--discovery-token-ca-cert-hash", hash)
	}
	return args
}

// hasTimeline checks that the timeline has a waiting phase, and rows of phases beside it.
func (m machine) hasTimeline(path string) {
	m.Helper()
	var trace struct {
		TraceEvents []struct {
			Name string
			Tid  int
		}
	}
	if err := json.Unmarshal([]byte(m.must("cat", path)), &trace); err != nil {
		m.Fatal(err)
	}
	lanes := map[int]bool{}
	found := false
	for _, e := range trace.TraceEvents {
		lanes[e.Tid] = true
		found = found || e.Name == "wait-control-plane/health"
	}
	if !found || len(lanes) < 2 {
		m.Errorf("the timeline has %d events in %d rows", len(trace.TraceEvents), len(lanes))
	}
}
