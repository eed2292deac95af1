// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// TestJoinCommandIsInTheCallersName, for people and programs: it's copied to other hosts, where the program has the same name.
func TestJoinCommandIsInTheCallersName(t *testing.T) {
	const ours, theirs = "slipway join 10.0.0.1:6443 --token abcdef", "kubeadm join 10.0.0.1:6443 --token abcdef"
	var lines, events bytes.Buffer
	namedUI{ui.NewLines(&lines, &lines), "kubeadm"}.Result(ours)
	e := ui.NewEvents("kubeadm", "v1", "init", &events)
	namedUI{e, "kubeadm"}.Outcome(ui.Outcome{JoinCommand: config.NewSecret(ours), ControlPlaneJoinCommand: config.NewSecret(ours + " --control-plane")})
	e.End(ui.Summary{}, nil)
	for name, said := range map[string]string{"people": lines.String(), "programs": events.String()} {
		if !strings.Contains(said, theirs) || strings.Contains(said, "slipway join") {
			t.Errorf("%s are told %q", name, said)
		}
	}
	if want := strings.Count(events.String(), theirs); want != 2 {
		t.Errorf("events have %d commands", want)
	}
	var out bytes.Buffer
	err := PrintList(&OutputOptions{Form: "json"}, &Globals{Program: "kubeadm", Streams: Streams{Out: &out}},
		[]*unstructured.Unstructured{{Object: map[string]any{"apiVersion": OutputAPI, "kind": "BootstrapToken", "joinCommand": ours}}}, func(io.Writer) error { return nil })
	if err != nil || !strings.Contains(out.String(), theirs) {
		t.Errorf("token create prints %q, %v", out.String(), err)
	}
}
