// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
)

type secret string

func (s secret) Reveal() string { return string(s) }
func (s secret) IsZero() bool   { return s == "" }

// eventsOf reads events, without the parts that differ from run to run.
func eventsOf(t *testing.T, out *bytes.Buffer) []map[string]any {
	t.Helper()
	var list []map[string]any
	for line := range strings.Lines(out.String()) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if e["time"] == nil {
			t.Errorf("%s has no time", line)
		}
		delete(e, "time")
		if _, timed := e["seconds"]; timed {
			e["seconds"] = "some"
		}
		list = append(list, e)
	}
	return list
}

// found is an error with known causes.
type found struct{ error }

func (found) Causes() any { return []string{"disk-full"} }

func (found) Remedy() string { return "free some" }

func TestEvents(t *testing.T) {
	var out bytes.Buffer
	e := NewEvents("slipway", "v1", "init", &out)
	if out.Len() > 0 {
		t.Error("something was written before there was anything to say")
	}
	e.Warnf("swap is %s", "on")
	in, end := e.Start("certs/ca")
	in.Printf("Generating %q", "ca")
	in.Warn("the clock is slow", "set it")
	in.Nextf("Copy %s", "ca.crt")
	in.Result("the token is canary")
	in.Outcome(Outcome{CACertHashes: []string{"sha256:ab"}, Token: secret("canary")})
	end(nil)
	_, end = e.Start("etcd")
	end(errors.WithMessage(found{errors.New("no space")}, "phase etcd"))
	e.Skip("addon", "--skip-phases")
	e.Outcome(Outcome{CertificateKey: secret("")})
	if strings.Contains(out.String(), "canary") {
		t.Errorf("an event other than the result has a secret:\n%s", out.String())
	}
	e.End(Summary{Node: "cp-1", Endpoint: "192.0.2.1:6443", ControlPlane: true, Files: []File{{"/a", "created"}}}, errors.New("phase etcd: no space"))
	type m = map[string]any
	want := []map[string]any{
		{"event": "run-started", "schema": "slipway.events/v1", "program": "slipway", "version": "v1", "command": "init"},
		{"event": "warning", "message": "swap is on"},
		{"event": "phase-started", "phase": "certs/ca"},
		{"event": "progress", "phase": "certs/ca", "message": `Generating "ca"`},
		{"event": "warning", "phase": "certs/ca", "message": "the clock is slow", "remedy": "set it"},
		{"event": "progress", "phase": "certs/ca", "message": "Copy ca.crt"},
		{"event": "phase-finished", "phase": "certs/ca", "seconds": "some"},
		{"event": "phase-started", "phase": "etcd"},
		{"event": "phase-failed", "phase": "etcd", "seconds": "some", "error": "phase etcd: no space", "remedy": "free some", "causes": []any{"disk-full"}},
		{"event": "phase-skipped", "phase": "addon", "reason": "--skip-phases"},
		{"event": "result", "command": "init", "succeeded": false, "error": "phase etcd: no space", "remedy": nil, "seconds": "some",
			"node": "cp-1", "role": "control-plane", "endpoint": "192.0.2.1:6443", "caCertHashes": []any{"sha256:ab"},
			"token": "canary", "certificateKey": nil, "joinCommand": nil, "controlPlaneJoinCommand": nil,
			"files": []any{m{"path": "/a", "change": "created"}}},
	}
	if diff := cmp.Diff(want, eventsOf(t, &out)); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// TestResultOfARunThatCouldNotBegin has every field nevertheless.
func TestResultOfARunThatCouldNotBegin(t *testing.T) {
	var out bytes.Buffer
	NewEvents("slipway", "v1", "join", &out).End(Summary{}, errors.New("bad input"))
	got := eventsOf(t, &out)
	want := map[string]any{"event": "result", "command": "join", "succeeded": false, "error": "bad input", "remedy": nil, "seconds": "some",
		"node": nil, "role": nil, "endpoint": nil, "caCertHashes": []any{}, "token": nil, "certificateKey": nil,
		"joinCommand": nil, "controlPlaneJoinCommand": nil, "files": []any{}}
	if len(got) != 2 || got[0]["event"] != "run-started" {
		t.Fatalf("got %v", got)
	}
	if diff := cmp.Diff(want, got[1]); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}
