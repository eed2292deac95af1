// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/test/fact"
)

func TestUpJoins(t *testing.T) {
	source := func(kind string) *Source {
		return &Source{Name: "f.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: " + kind + "\n")}
	}
	for name, c := range map[string]struct {
		flags Flags
		src   *Source
		want  bool
	}{
		"nothing":              {want: false},
		"an endpoint":          {flags: Flags{Endpoint: "192.0.2.11:6443"}, want: true},
		"discovery by file":    {flags: Flags{Given: []string{"discovery-file"}}, want: true},
		"a JoinConfiguration":  {src: source("JoinConfiguration"), want: true},
		"an InitConfiguration": {src: source("InitConfiguration"), want: false},
		"both": {src: &Source{Name: "f.yaml", Data: slices.Concat(source("JoinConfiguration").Data, []byte("---\n"), source("ClusterConfiguration").Data)},
			want: false},
	} {
		if got := c.flags.Joins(c.src); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestForUp(t *testing.T) {
	given := []string{"bundle", "cri-socket", "ignore-preflight-errors", "skip-phases", "token", "dry-run", "output"}
	for name, c := range map[string]struct {
		more       []string
		joins      bool
		node, host []string
		err        string
	}{
		"init": {
			more: []string{"schedulable", "network", "pod-network-cidr"},
			node: []string{"cri-socket", "ignore-preflight-errors", "token", "dry-run", "schedulable", "network", "pod-network-cidr"},
			host: []string{"bundle", "cri-socket", "ignore-preflight-errors", "dry-run"},
		},
		"join": {
			more: []string{"discovery-token-ca-cert-hash"}, joins: true,
			node: []string{"cri-socket", "ignore-preflight-errors", "token", "dry-run", "discovery-token-ca-cert-hash"},
			host: []string{"bundle", "cri-socket", "ignore-preflight-errors", "dry-run"},
		},
		"init with a flag of join": {
			more: []string{"control-plane"},
			err:  "--control-plane | HOST:PORT | --discovery-file",
		},
		"join with flags of init": {
			more: []string{"network", "schedulable"}, joins: true,
			err: "--network, --schedulable | first host",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := Flags{Given: append(slices.Clone(given), c.more...), SkipPhases: []string{"prepare/swap"}}
			node, host, err := f.ForUp(c.joins, nil)
			if c.err != "" {
				fact.Error(t, err, fact.Of(c.err)...)
				return
			}
			if err != nil || node.SkipPhases != nil || !slices.Equal(host.SkipPhases, []string{"swap"}) {
				t.Fatal(err, node.SkipPhases, host.SkipPhases)
			}
			for part, pair := range map[string][2][]string{"node": {c.node, node.Given}, "host": {c.host, host.Given}} {
				if diff := cmp.Diff(pair[0], pair[1]); diff != "" {
					t.Errorf("%s, -want +got:\n%s", part, diff)
				}
			}
		})
	}
}

// TestForUpReadsTheFile: the host is prepared with the file's settings for the node, which flags override or add to.
func TestForUpReadsTheFile(t *testing.T) {
	for name, c := range map[string]struct {
		kind  string
		joins bool
		flags Flags
		want  Node
	}{
		"init": {kind: "InitConfiguration", want: Node{CRISocket: "unix:///run/of-file.sock", IgnorePreflightErrors: []string{"swap"}}},
		"join": {kind: "JoinConfiguration", joins: true, want: Node{CRISocket: "unix:///run/of-file.sock", IgnorePreflightErrors: []string{"swap"}}},
		"flags": {
			kind: "InitConfiguration", flags: Flags{CRISocket: "/run/of-flag.sock", IgnorePreflightErrors: []string{"CNI"}},
			want: Node{CRISocket: "unix:///run/of-flag.sock", IgnorePreflightErrors: []string{"cni", "swap"}},
		},
		"another kind": {kind: "JoinConfiguration"},
	} {
		t.Run(name, func(t *testing.T) {
			src := &Source{Name: "up.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: " + c.kind +
				"\nnodeRegistration: {criSocket: /run/of-file.sock, ignorePreflightErrors: [Swap]}\n")}
			_, host, err := c.flags.ForUp(c.joins, src)
			if err != nil {
				t.Fatal(err)
			}
			n, err := LoadHost(host)
			if err != nil || n.CRISocket != c.want.CRISocket || !slices.Equal(n.IgnorePreflightErrors, c.want.IgnorePreflightErrors) {
				t.Errorf("%q, %q, %v, want %q, %q", n.CRISocket, n.IgnorePreflightErrors, err, c.want.CRISocket, c.want.IgnorePreflightErrors)
			}
		})
	}
}

// TestUpTakesAllFlags: up and down have each flag of their parts, once.
func TestUpTakesAllFlags(t *testing.T) {
	for command, parts := range map[string][]string{"up": {"init", "join", "host prepare"}, "down": {"reset", "host reset"}} {
		var f Flags
		have := pflag.NewFlagSet(command, pflag.ContinueOnError)
		f.Bind(have, command)
		for _, part := range parts {
			want := pflag.NewFlagSet(part, pflag.ContinueOnError)
			f.Bind(want, part)
			want.VisitAll(func(row *pflag.Flag) {
				if got := have.Lookup(row.Name); got == nil || got.Value.Type() != row.Value.Type() {
					t.Errorf("%s has no --%s as %s has it", command, row.Name, part)
				}
			})
		}
	}
}

// TestDownWithHost: the leftovers of the node's network go, too.
func TestDownWithHost(t *testing.T) {
	f := Flags{Given: []string{"force"}, Force: true}
	if node, _ := f.ForDown(); node.Network || !node.Force {
		t.Errorf("down: %+v", node)
	}
	f.Host = true
	if node, _ := f.ForDown(); !node.Network || !node.given("network") {
		t.Errorf("down --host: %+v", node)
	}
}

// TestSchedulable: the flag equals `taints: []` in a file.
func TestSchedulable(t *testing.T) {
	n, _, err := LoadInit(t.Context(), nil, Flags{Given: []string{"schedulable"}, Schedulable: true}, testOptions())
	if err != nil || !n.Schedulable || len(n.Taints) != 0 {
		t.Errorf("%v, %v, %v", n.Schedulable, n.Taints, err)
	}
}

// TestVersionOfBundle: the bundle's version is the default; the user's choice takes precedence.
func TestVersionOfBundle(t *testing.T) {
	opts := testOptions()
	opts.KubernetesVersion = "v1.36.4"
	for want, flags := range map[string]Flags{"v1.36.4": {}, "v1.37.1": {Given: []string{"kubernetes-version"}, KubernetesVersion: "v1.37.1"}} {
		if n, _, err := LoadInit(t.Context(), nil, flags, opts); err != nil || n.Cluster.KubernetesVersion != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
