// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
)

// shortSteps returns a line per step: the node, the component, the version, and the commands.
func shortSteps(steps []Step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString(s.Node + " " + s.Component + " " + s.Version)
		for _, c := range s.Commands {
			if s.Component == stepControlPlane || strings.HasPrefix(c, "slipway") {
				b.WriteString(" | " + c)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestSteps(t *testing.T) {
	for name, c := range map[string]struct {
		configured, nodes string
		route             Route
		want              string
	}{
		"three minors, kubelets at the limit": {"v1.34.9", "cp-1=v1.34.9/v1.34.9 cp-2=v1.34.9/v1.34.9 cp-3=v1.34.9/v1.34.9 w-1=/v1.33.4 w-2=/v1.34.9",
			Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}, Here: "cp-2"}, `
cp-2 control-plane v1.35.8 | slipway upgrade apply v1.35.8
cp-1 control-plane v1.35.8 | slipway upgrade node
cp-3 control-plane v1.35.8 | slipway upgrade node
cp-2 control-plane v1.36.4 | slipway upgrade apply v1.36.4
cp-1 control-plane v1.36.4 | slipway upgrade node
cp-3 control-plane v1.36.4 | slipway upgrade node
w-1 kubelet v1.36.4 | slipway upgrade node
cp-2 control-plane v1.37.2 | slipway upgrade apply v1.37.2
cp-1 control-plane v1.37.2 | slipway upgrade node
cp-3 control-plane v1.37.2 | slipway upgrade node
cp-1 kubelet v1.37.2
cp-2 kubelet v1.37.2
cp-3 kubelet v1.37.2
w-1 kubelet v1.37.2 | slipway upgrade node
w-2 kubelet v1.37.2 | slipway upgrade node
`},
		"one minor": {"v1.36.4", "cp-1=v1.36.4/v1.36.4 w-1=/v1.34.0", Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}}, `
cp-1 control-plane v1.37.2 | slipway upgrade apply v1.37.2
cp-1 kubelet v1.37.2
w-1 kubelet v1.37.2 | slipway upgrade node
`},
		"without etcd, from another host": {"v1.36.4", "cp-1=v1.36.4/v1.37.2 cp-2=v1.36.4/v1.37.2", Route{Upgrade: config.Upgrade{Version: "v1.37.2"}, Here: "laptop"}, `
cp-1 control-plane v1.37.2 | slipway upgrade apply v1.37.2 --etcd-upgrade=false
cp-2 control-plane v1.37.2 | slipway upgrade node --etcd-upgrade=false
`},
		"a release candidate": {"v1.36.4", "cp-1=v1.36.4/v1.37.0", Route{Upgrade: config.Upgrade{Version: "v1.37.0-rc.1", Etcd: true}}, `
cp-1 control-plane v1.37.0-rc.1 | slipway upgrade apply v1.37.0-rc.1 --allow-release-candidate-upgrades
`},
		"an alpha": {"v1.36.4", "cp-1=v1.36.4/v1.37.0", Route{Upgrade: config.Upgrade{Version: "v1.37.0-alpha.1", Etcd: true}}, `
cp-1 control-plane v1.37.0-alpha.1 | slipway upgrade apply v1.37.0-alpha.1 --allow-experimental-upgrades
`},
		"apply was interrupted after its control plane": {"v1.36.4", "cp-1=v1.36.4/v1.37.2 cp-2=v1.37.2/v1.37.2", Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}, Here: "cp-1"}, `
cp-2 control-plane v1.37.2 | slipway upgrade apply v1.37.2
cp-1 control-plane v1.37.2 | slipway upgrade node
`},
		"apply is done": {"v1.37.2", "cp-1=v1.37.2/v1.36.4 cp-2=v1.36.4/v1.36.4", Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}}, `
cp-2 control-plane v1.37.2 | slipway upgrade node
cp-1 kubelet v1.37.2
cp-2 kubelet v1.37.2
`},
		"only a kubelet": {"v1.37.2", "cp-1=v1.37.2/v1.37.2 w-1=/v1.36.4", Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}}, `
w-1 kubelet v1.37.2 | slipway upgrade node
`},
		"a patch that is not known": {"v1.35.2", "cp-1=v1.35.2/v1.37.9", Route{Upgrade: config.Upgrade{Version: "v1.37.9", Etcd: true}}, `
cp-1 control-plane v1.36.4 | slipway upgrade apply v1.36.4
cp-1 control-plane v1.37.9 | slipway upgrade apply v1.37.9
`},
		"etcd's leader comes last": {"v1.36.4", "cp-1=v1.36.4/v1.37.2 cp-2=v1.36.4/v1.37.2 cp-3=v1.36.4/v1.37.2",
			Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}, Here: "cp-2", Leader: "cp-1"}, `
cp-2 control-plane v1.37.2 | slipway upgrade apply v1.37.2
cp-3 control-plane v1.37.2 | slipway upgrade node
cp-1 control-plane v1.37.2 | slipway upgrade node
`},
		"with the flags of the plan": {"v1.36.4", "cp-1=v1.36.4/v1.37.2 cp-2=v1.36.4/v1.37.2 w-1=/v1.36.4",
			Route{Upgrade: config.Upgrade{Version: "v1.37.2"}, Here: "cp-1", Patched: true,
				Given: Given{Kubeconfig: "/root/admin.conf", Patches: "/root/my patches", IgnorePreflightErrors: []string{"Swap", "NumCPU"}}}, `
cp-1 control-plane v1.37.2 | slipway upgrade apply v1.37.2 --kubeconfig /root/admin.conf --ignore-preflight-errors Swap,NumCPU --etcd-upgrade=false --patches '/root/my patches'
cp-2 control-plane v1.37.2 | slipway upgrade node --kubeconfig /root/admin.conf --ignore-preflight-errors Swap,NumCPU --etcd-upgrade=false --patches '/root/my patches'
w-1 kubelet v1.37.2 | slipway upgrade node --ignore-preflight-errors Swap,NumCPU --patches '/root/my patches'
`},
		"with a configuration file": {"v1.36.4", "cp-1=v1.36.4/v1.37.0 cp-2=v1.36.4/v1.37.0",
			Route{Upgrade: config.Upgrade{Version: "v1.37.0-rc.1"}, Here: "cp-2", Patched: true, Given: Given{Config: "/root/up.yaml"}}, `
cp-2 control-plane v1.37.0-rc.1 | # put the printed patches into the directory of patches that /root/up.yaml names | slipway upgrade apply v1.37.0-rc.1 --config /root/up.yaml
cp-1 control-plane v1.37.0-rc.1 | slipway upgrade node --config /root/up.yaml
`},
		"with printed patches": {"v1.35.8", "cp-1=v1.35.8/v1.37.2 cp-2=v1.35.8/v1.37.2",
			Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}, Here: "cp-2", Leader: "cp-2", Patched: true}, `
cp-1 control-plane v1.36.4 | slipway upgrade apply v1.36.4
cp-2 control-plane v1.36.4 | slipway upgrade node --patches DIR
cp-1 control-plane v1.37.2 | slipway upgrade apply v1.37.2
cp-2 control-plane v1.37.2 | ` + printAgain + ` | slipway upgrade node --patches DIR
`},
		"nothing": {"v1.37.2", "cp-1=v1.37.2/v1.37.2", Route{Upgrade: config.Upgrade{Version: "v1.37.2", Etcd: true}}, "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &State{Configured: c.configured, Nodes: clusterOf(c.nodes)}
			steps, err := s.Steps(c.route)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, "\n"+shortSteps(steps)); diff != "" {
				t.Errorf("steps:\n%s", diff)
			}
		})
	}
}

// TestFirstStep: a control plane doesn't skip a minor, and may be ahead of the others.
func TestFirstStep(t *testing.T) {
	s := &State{Configured: "v1.35.8", Nodes: clusterOf("cp-1=v1.35.8/v1.35.8 cp-2=v1.36.4/v1.35.8")}
	for node, want := range map[string]string{"cp-1": "v1.36.4", "cp-2": "v1.37.2", "laptop": "v1.37.2"} {
		if got := s.FirstStep(node, "v1.37.2"); got != want {
			t.Errorf("%s: %s, want %s", node, got, want)
		}
	}
}

// TestHiddenSecretsShown: the plan tells which patches lack secrets.
func TestHiddenSecretsShown(t *testing.T) {
	p := Plan{Upgrades: []Upgrade{{Patches: []PatchFile{{"a.yaml", "x: '[redacted]'\n"}, {"b.yaml", "x: y\n"}}}}}
	var b strings.Builder
	if err := p.Print(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Count(b.String(), "a.yaml") != 2 || strings.Count(b.String(), "b.yaml") != 1 {
		t.Error(b.String())
	}
}

// TestStepsKeepTheSkew: after each step, the versions of the whole cluster still go together.
func TestStepsKeepTheSkew(t *testing.T) {
	for _, nodes := range []string{
		"cp-1=v1.34.9/v1.34.9 cp-2=v1.34.9/v1.33.1 cp-3=v1.34.9/v1.32.1 w-1=/v1.33.4 w-2=/v1.31.9",
		"cp-1=v1.34.0/v1.31.9 w-1=/v1.34.0",
	} {
		s := &State{Configured: "v1.34.9", Nodes: clusterOf(nodes)}
		steps, err := s.Steps(Route{Upgrade: config.Upgrade{Version: "v1.37.2"}})
		if err != nil {
			t.Fatal(err)
		}
		for i, step := range steps {
			if step.Version == "v1.34.0" || step.Version == "v1.34.9" {
				if c := strings.Join(step.Commands, "\n"); step.Component != stepKubelet || strings.Contains(c, "slipway") {
					t.Errorf("step %+v needs a version that this program cannot set up", step)
				}
			}
			for j := range s.Nodes {
				switch n := &s.Nodes[j]; {
				case n.Name != step.Node:
				case step.Component == stepKubelet:
					n.Kubelet = step.Version
				default:
					n.APIServer = step.Version
				}
			}
			_, newest := s.span()
			if step.Component == stepKubelet {
				continue // other nodes may still lack something
			}
			for _, r := range Refusals(&config.Upgrade{Version: "v" + newest.String()}, s.Nodes) {
				t.Errorf("%s: after step %d (%+v): %s", nodes, i+1, step, r.Message)
			}
		}
	}
}

// TestStepsOutOfReach: the way leads through a version this program can't set up.
func TestStepsOutOfReach(t *testing.T) {
	s := &State{Configured: "v1.32.1", Nodes: clusterOf("cp-1=v1.32.1/v1.32.1")}
	_, err := s.Steps(Route{Upgrade: config.Upgrade{Version: "v1.37.2"}})
	if err == nil {
		t.Fatal("no error")
	}
	fact.In(t, fault.Remedy(err), "to 1.34", "kubeadm")
}

func TestOffers(t *testing.T) {
	for _, c := range []struct {
		configured, nodes string
		want              []Offer
	}{
		{"v1.36.3", "cp-1=v1.36.3/v1.36.3", []Offer{{"v1.36.4", "version in the v1.36 series"}, {"v1.37.2", "stable version"}}},
		{"v1.36.4", "cp-1=v1.36.4/v1.36.4", []Offer{{"v1.37.2", "stable version"}}},
		{"v1.36.9", "cp-1=v1.36.9/v1.36.9", []Offer{{"v1.37.2", "stable version"}}},
		{"v1.37.2", "cp-1=v1.37.2/v1.36.4", nil},
		{"v1.37.2", "cp-1=v1.37.2/v1.36.4 cp-2=v1.36.3/v1.36.3", []Offer{{"v1.37.2", "stable version"}}},
		{"v1.34.0", "cp-1=v1.34.0/v1.34.0", []Offer{{"v1.35.8", "stable version"}}},
		{"v1.36.3", "cp-1=/v1.36.3", []Offer{{"v1.36.4", "version in the v1.36 series"}, {"v1.37.2", "stable version"}}},
		{"v1.20.0", "", nil},
	} {
		s := &State{Configured: c.configured, Nodes: clusterOf(c.nodes)}
		if diff := cmp.Diff(c.want, s.Offers()); diff != "" {
			t.Errorf("offers to %s, %s:\n%s", c.configured, c.nodes, diff)
		}
	}
}

func TestNamed(t *testing.T) {
	s := &State{Configured: "v1.37.1", Nodes: clusterOf("cp-1=v1.37.1/v1.37.1 w-1=/v1.36.4")}
	for target, want := range map[string]bool{"v1.37.2": true, "v1.37.1": true, "v1.36.4": false, "v1.36.0": false} {
		if got := s.Named(target); (got != nil) != want {
			t.Errorf("%s: %+v", target, got)
		}
	}
}
