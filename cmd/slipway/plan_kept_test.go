// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/golden"
	"github.com/slipway-k8s/slipway/test/schema"
)

var someKept = []ui.Kept{
	{Path: "/etc/a", Summary: "only there: one", Remedy: "run `slipway init phase a` to write it", Now: "one\n", Ours: "two\n"},
	{Kind: "ConfigMap", Namespace: "kube-system", Name: "c", Summary: "data.k", Now: "k: old\n", Ours: "k: new\n"},
	{Kind: "Secret", Namespace: "kube-system", Name: "s", Summary: "values that are not shown"},
}

// TestPlanKept: with --diff, what stays as it is has a step with all of the
// difference, in place of the warning that other runs give.
func TestPlanKept(t *testing.T) {
	var said bytes.Buffer
	p := &plan{form: "text", command: "init", node: "cp-1", now: newPresent(host.NewAt(t.TempDir()))}
	for _, k := range someKept {
		ui.SayKept(planUI{ui.NewLines(&said, io.Discard), p}, k)
	}
	var text, document bytes.Buffer
	must(t, p.write(&text))
	golden.Check(t, "../../testdata/golden/plan/kept.txt", text.String())
	if said.Len() > 0 {
		t.Errorf("said %q", said.String())
	}
	s, err := schema.Plan()
	must(t, err)
	p.form = "json"
	must(t, p.write(&document))
	must(t, s.Check(document.Bytes()))
}

// TestKeptIsSaid: without --diff it is a warning, in the program's own name.
func TestKeptIsSaid(t *testing.T) {
	var said bytes.Buffer
	lines := namedUI{ui.NewLines(&said, io.Discard), "kubeadm"}
	for _, u := range []ui.UI{lines, planUI{lines, &plan{}}} {
		said.Reset()
		ui.SayKept(u, someKept[0])
		fact.List(t, strings.Split(strings.TrimSpace(said.String()), "\n"), "[WARNING] | /etc/a | one", "[WARNING] | `kubeadm init phase a`")
	}
}
