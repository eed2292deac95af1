// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/plan"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestPlanPartsOnlyRecord: no part of a plan can act, nobody is asked for confirmation, and the plan takes the result's place.
func TestPlanPartsOnlyRecord(t *testing.T) {
	var out bytes.Buffer
	m := Planning{G: &cli.Globals{Program: "slipway", Streams: cli.Streams{Out: &out, Err: io.Discard}}}
	node := &config.Node{Machine: *config.DefaultMachine()}
	api, err := m.APIParts(UserKubeconfig{"/none"}, "text", "token delete")
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Parts{
		"workflow": m.Parts(node, linux.NewAt(t.TempDir())), "host": m.MachineParts(&node.Machine, linux.NewAt(t.TempDir())), "API": api,
	} {
		t.Run(name, func(t *testing.T) {
			defer p.Close()
			out.Reset()
			if _, real := p.Env.Host.(*linux.Host); real {
				t.Error("it acts on the host")
			}
			if _, plans := p.Env.Cluster.(*cluster.Plan); !plans {
				t.Errorf("its cluster is a %T", p.Env.Cluster)
			}
			if _, plans := p.Env.Etcd.(*etcd.Plan); plans != (name == "workflow") || !plans && p.Env.Etcd != nil {
				t.Errorf("its etcd is a %T", p.Env.Etcd)
			}
			never := func() error { return errors.New("called") }
			if err := errors.WithMessage(p.Confirm(never), "confirm"); err != nil {
				t.Error(err)
			}
			if err := p.Show(never); err != nil || !strings.HasPrefix(out.String(), "Plan: 0 steps. ") {
				t.Errorf("shows %q, %v", out.String(), err)
			}
		})
	}
}

// TestPlanOnWorkerAsks: a plan of host prepare asks the cluster on its workers, and nobody elsewhere.
func TestPlanOnWorkerAsks(t *testing.T) {
	m := Planning{G: &cli.Globals{Program: "slipway", Streams: cli.Streams{Out: io.Discard, Err: io.Discard}}}
	const kubelets, server = "etc/kubernetes/kubelet.conf", "etc/kubernetes/manifests/kube-apiserver.yaml"
	for name, tt := range map[string]struct{ files, want []string }{
		"no node":         {},
		"a worker":        {[]string{kubelets}, []string{"/etc/kubernetes/kubelet.conf"}},
		"a control plane": {files: []string{kubelets, server}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, path := range tt.files {
				fixture.Put(t, root, "/"+path, "x")
			}
			p := m.MachineParts(config.DefaultMachine(), linux.NewAt(root))
			defer p.Close()
			_, err := cluster.ConfigMapText(t.Context(), p.Env.Cluster, "kube-system", "kubeadm-config", "ClusterConfiguration")
			fact.Error(t, err, tt.want...)
		})
	}
}

// TestAPIPartsAct: these parts ask for confirmation and show the result, and have no etcd to change.
func TestAPIPartsAct(t *testing.T) {
	p := NewAPIParts(&cli.Globals{Program: "slipway"}, UserKubeconfig{"/none"}, AskTimeout)
	defer p.Close()
	called := errors.New("called")
	fail := func() error { return called }
	if !errors.Is(p.Confirm(fail), called) || !errors.Is(p.Show(fail), called) {
		t.Error("it does not ask, or does not show the result")
	}
	if _, acts := p.Env.Cluster.(*cluster.Real); !acts || p.Env.Etcd != nil {
		t.Errorf("its cluster is a %T, its etcd a %T", p.Env.Cluster, p.Env.Etcd)
	}
}

// TestLastLines: a run ends with them if the program is called kubeadm, but a plan never does.
func TestLastLines(t *testing.T) {
	const kubeletLine = "[upgrade/kubelet-config] The kubelet configuration for this node was successfully upgraded!"
	worker := &config.Node{}
	plane := &config.Node{ControlPlane: true}
	first := &config.Node{ControlPlane: true, Upgrade: &config.Upgrade{First: true}, Cluster: config.ClusterConfiguration{KubernetesVersion: "v1.37.2"}}
	half := &config.Node{ControlPlane: true, Upgrade: &config.Upgrade{}, Machine: config.Machine{SkipPhases: []string{"control-plane"}}}
	for name, tt := range map[string]struct{ got, want []string }{
		"worker joins":         {cli.JoinedLines(worker), []string{"This node has joined the cluster:"}},
		"control plane joins":  {cli.JoinedLines(plane), []string{"This node has joined the cluster and a new control plane instance was created:"}},
		"upgrade apply":        {cli.UpgradedLines(first), []string{"[upgrade/control-plane] The control plane instance for this node was successfully upgraded!", kubeletLine, `[upgrade] SUCCESS! A control plane node of your cluster was upgraded to "v1.37.2".`}},
		"part of upgrade node": {cli.UpgradedLines(half), []string{kubeletLine}},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			g := &cli.Globals{Program: "kubeadm", Streams: cli.Streams{Out: &out, Err: &bytes.Buffer{}}}
			p := &Parts{
				Env: &step.Env{UI: cli.NewUI(g)}, begin: noLock,
				Show: call, Close: func() {}, Last: tt.got,
			}
			if err := p.Run(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(out.String(), "\n")
			for _, want := range tt.want {
				if !slices.Contains(lines, want) {
					t.Errorf("no line %q in:\n%s", want, out.String())
				}
			}
			if strings.Contains(name, "part") && strings.Contains(out.String(), "[upgrade/control-plane]") {
				t.Errorf("a phase that was left out is reported:\n%s", out.String())
			}
			out.Reset()
			p.Show = func(func() error) error { return nil } // a plan prints itself
			if err := p.Run(t.Context(), nil, nil); err != nil || out.Len() > 0 {
				t.Errorf("%v, %q", err, out.String())
			}
		})
	}
}

// TestKeptIsSaid: without --diff it's a warning, in the program's own name.
func TestKeptIsSaid(t *testing.T) {
	var said bytes.Buffer
	lines := cli.NewUI(&cli.Globals{Program: "kubeadm", Streams: cli.Streams{Out: io.Discard, Err: &said}})
	kept := ui.Kept{Path: "/etc/a", Summary: "only there: one", Remedy: "run `slipway init phase a` to write it", Now: "one\n", Ours: "two\n"}
	for _, u := range []ui.UI{lines, plan.UI{UI: lines, Plan: &plan.Plan{}}} {
		said.Reset()
		ui.SayKept(u, kept)
		fact.List(t, strings.Split(strings.TrimSpace(said.String()), "\n"), "[WARNING] | /etc/a | one", "[WARNING] | `kubeadm init phase a`")
	}
}
