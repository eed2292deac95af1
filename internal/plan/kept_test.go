// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"bytes"
	"io"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
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
	p := &Plan{Form: "text", Command: "init", Node: "cp-1", now: newPresent(host.NewAt(t.TempDir()))}
	for _, k := range someKept {
		ui.SayKept(UI{UI: ui.NewLines(&said, io.Discard), Plan: p}, k)
	}
	var text, document bytes.Buffer
	check(t, p.Write(&text))
	golden.Check(t, "../../testdata/golden/plan/kept.txt", text.String())
	if said.Len() > 0 {
		t.Errorf("said %q", said.String())
	}
	s, err := schema.Plan()
	check(t, err)
	p.Form = "json"
	check(t, p.Write(&document))
	check(t, s.Check(document.Bytes()))
}
