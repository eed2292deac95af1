// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"crypto"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/workflow"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/machine"
	"github.com/slipway-k8s/slipway/phases/reset"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestNeedsExist checks that the phases named in workflows exist, and that none waits for itself.
func TestNeedsExist(t *testing.T) {
	for name, list := range map[string][]step.Phase{
		"init": bootstrap.Init(), "join": bootstrap.Join(), "reset": reset.Node(),
		"up": Up(&machine.Prepare{}, &config.Machine{}), "up to join": UpJoin(&machine.Prepare{}, &config.Machine{}), "down": DownHost(&config.Machine{}),
	} {
		known := workflow.Paths(list)
		var walk func(siblings []step.Phase)
		walk = func(siblings []step.Phase) {
			for _, p := range siblings {
				for _, need := range p.Needs {
					if !slices.Contains(known, need) {
						t.Errorf("%s: %s needs %s, which does not exist", name, p.Name, need)
					}
				}
				walk(p.Children)
			}
		}
		walk(list)
		for _, role := range []bool{false, true} {
			n := fixture.GoldenNode(t, fixture.Path("testdata/golden/node/default/input.yaml"))
			n.ControlPlane, n.Join, n.Reset = role, &config.Join{}, &config.Reset{}
			if err := step.Run(t.Context(), &step.Env{Config: n, UI: phasetest.QuietUI()}, idle(list), step.Options{}); err != nil {
				t.Errorf("%s, control plane %v: %v", name, role, err)
			}
		}
	}
}

// idle returns phases in the same order that do nothing.
func idle(list []step.Phase) []step.Phase {
	list = slices.Clone(list)
	for i := range list {
		list[i].Children = idle(list[i].Children)
		list[i].NeedsSpare = nil
		list[i].Run = func(context.Context, *step.Env) error { return nil }
	}
	return list
}

// numberedKey distinguishes keys by the order in which they were generated.
type numberedKey struct {
	crypto.Signer
	number int
}

// keyed returns a child of a phase that reports its key, if it takes any, and does nothing.
func keyed(parent string, p step.Phase, report func(path string, key crypto.Signer)) step.Phase {
	p.Skip = nil
	if p.NeedsSpare == nil {
		p.Run = func(context.Context, *step.Env) error { return nil }
		return p
	}
	p.NeedsSpare = func(*step.Env) bool { return true }
	p.Run = func(_ context.Context, env *step.Env) error {
		report(parent+"/"+p.Name, env.SpareKey)
		return nil
	}
	return p
}

// TestKeysOfInit: the first keys go to the files the kubelet needs to start, the next to etcd, which has to elect a leader, then
// to the API server. The kubeconfig files of clients that only use the API server can wait.
func TestKeysOfInit(t *testing.T) {
	var mu sync.Mutex
	made, number := 0, map[string]int{}
	all := make(chan struct{})
	list := bootstrap.Init()
	list[0].Run = func(context.Context, *step.Env) error { <-all; return nil }
	for i := range list {
		for j := range list[i].Children {
			list[i].Children[j] = keyed(list[i].Name, list[i].Children[j], func(path string, key crypto.Signer) {
				mu.Lock()
				defer mu.Unlock()
				number[path] = key.(numberedKey).number
			})
		}
		if len(list[i].Children) == 0 && i > 0 {
			list[i].Run = func(context.Context, *step.Env) error { return nil }
		}
	}
	newKey := func(*step.Env) (func(*step.Env) *step.Env, error) {
		if made++; made == 16 {
			close(all)
		}
		key := numberedKey{number: made}
		return func(env *step.Env) *step.Env { keyed := *env; keyed.SpareKey = key; return &keyed }, nil
	}
	env := &step.Env{Config: fixture.GoldenNode(t, fixture.Path("testdata/golden/node/default/input.yaml")), UI: phasetest.QuietUI()}
	if err := workflow.Run(t.Context(), env, list, workflow.Options[*step.Env]{NewSpare: newKey, AtOnce: 1}); err != nil {
		t.Fatal(err)
	}
	got := slices.SortedFunc(maps.Keys(number), func(a, b string) int { return cmp.Compare(number[a], number[b]) })
	if len(got) != 16 {
		t.Fatalf("%d keys: %v", len(got), got)
	}
	for _, part := range []struct{ of, want []string }{
		{got[:2], []string{"certs/ca", "kubeconfig/kubelet"}},
		{got[2:5], []string{"certs/etcd-ca", "certs/etcd-peer", "certs/etcd-server"}},
		{got[5:11], []string{"certs/apiserver", "certs/apiserver-etcd-client", "certs/apiserver-kubelet-client", "certs/front-proxy-ca", "certs/front-proxy-client", "certs/sa"}},
		{got[11:], []string{"certs/etcd-healthcheck-client", "kubeconfig/admin", "kubeconfig/controller-manager", "kubeconfig/scheduler", "kubeconfig/super-admin"}},
	} {
		if diff := gocmp.Diff(part.want, slices.Sorted(slices.Values(part.of))); diff != "" {
			t.Errorf("handed in the order %v (-want +got):\n%s", got, diff)
		}
	}
}

func TestInitHasKubeadmsPhases(t *testing.T) {
	want := strings.Fields(`preflight
		certs certs/ca certs/apiserver certs/apiserver-kubelet-client certs/front-proxy-ca certs/front-proxy-client
		certs/etcd-ca certs/etcd-server certs/etcd-peer certs/etcd-healthcheck-client certs/apiserver-etcd-client certs/sa
		kubeconfig kubeconfig/admin kubeconfig/super-admin kubeconfig/kubelet kubeconfig/controller-manager kubeconfig/scheduler
		kubelet-start
		etcd etcd/local
		control-plane control-plane/apiserver control-plane/controller-manager control-plane/scheduler
		wait-control-plane wait-control-plane/api-server wait-control-plane/health wait-control-plane/network
		upload-config upload-config/kubeadm upload-config/kubelet
		upload-certs mark-control-plane bootstrap-token
		kubelet-finalize kubelet-finalize/enable-client-cert-rotation kubelet-finalize/kubelet-serving
		addon addon/coredns addon/kube-proxy addon/network
		show-join-command`)
	if diff := gocmp.Diff(want, workflow.Paths(bootstrap.Init())); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}
