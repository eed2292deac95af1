// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

type keyOwner struct {
	etcd.Etcd
	asked  []string
	answer bool
	err    error
}

func (o *keyOwner) Withdraw(_ context.Context, key string) (bool, error) {
	o.asked = append(o.asked, key)
	return o.answer, o.err
}

// TestWithdrawEndpoint: the Service loses this node's API server before it stops, and no other.
func TestWithdrawEndpoint(t *testing.T) {
	const own, other = "192.0.2.11", "192.0.2.12"
	const key = "/registry/masterleases/" + own
	for name, test := range map[string]struct {
		servers []string
		sick    bool
		etcd    keyOwner
		asks    string
		left    string
		waits   time.Duration
		fails   bool
	}{
		"one of two":           {[]string{own, other}, false, keyOwner{answer: true}, key, other, proxyDelay, false},
		"the only one":         {[]string{own}, false, keyOwner{answer: true}, "", own, 0, false},
		"does not serve":       {[]string{own, other}, true, keyOwner{answer: true}, "", own + " " + other, 0, false},
		"without key":          {[]string{own, other}, false, keyOwner{}, key, own + " " + other, 0, false},
		"etcd does not answer": {[]string{own, other}, false, keyOwner{err: errors.New("no leader")}, key, own + " " + other, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := planeOfPods(t)
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error {
				if test.sick {
					return errors.New("refused")
				}
				return nil
			}
			s.Etcd = &test.etcd
			slice := &discoveryv1.EndpointSlice{ObjectMeta: kubernetesService()}
			//nolint:staticcheck // The API servers still write this one, too.
			endpoints := &corev1.Endpoints{ObjectMeta: kubernetesService(), Subsets: []corev1.EndpointSubset{{}}}
			for _, address := range test.servers {
				slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
				endpoints.Subsets[0].Addresses = append(endpoints.Subsets[0].Addresses, corev1.EndpointAddress{IP: address})
			}
			if err := s.API.Ensure(t.Context(), slice, endpoints); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				started := time.Now()
				prepareClients(t.Context(), s.Env, manifests.APIServerName)
				if warned := strings.Contains(s.Said.String(), "[WARNING]"); warned != test.fails {
					t.Errorf("said %q", s.Said.String())
				}
				if took := time.Since(started); took != test.waits {
					t.Errorf("waited %s", took)
				}
			})
			if diff := cmp.Diff(test.asks, strings.Join(test.etcd.asked, " ")); diff != "" {
				t.Errorf("asked etcd (-want +got):\n%s", diff)
			}
			servesAt(t, s, test.left)
		})
	}
}

func servesAt(t *testing.T, s *phasetest.Stage, want string) {
	t.Helper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: kubernetesService()}
	//nolint:staticcheck // The API servers still write this one, too.
	endpoints := &corev1.Endpoints{ObjectMeta: kubernetesService()}
	var inSlice, inEndpoints []string
	for _, found := range []func() (bool, error){
		func() (bool, error) { return s.API.Get(t.Context(), slice) }, func() (bool, error) { return s.API.Get(t.Context(), endpoints) },
	} {
		if ok, err := found(); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	for _, e := range slice.Endpoints {
		inSlice = append(inSlice, e.Addresses...)
	}
	for _, a := range endpoints.Subsets[0].Addresses {
		inEndpoints = append(inEndpoints, a.IP)
	}
	if got := strings.Join(inSlice, " "); got != want {
		t.Errorf("the EndpointSlice has %q, want %q", got, want)
	}
	if got := strings.Join(inEndpoints, " "); got != want {
		t.Errorf("the Endpoints have %q, want %q", got, want)
	}
}

// TestEndpointKey: API servers put a slash before --etcd-prefix if it has none.
func TestEndpointKey(t *testing.T) {
	for prefix, want := range map[string]string{"": "/registry", "/own": "/own", "own": "/own", "own/": "/own"} {
		s, owner := planeOfPods(t), &keyOwner{}
		s.Etcd = owner
		if prefix != "" {
			s.Config = s.Config.With(func(n *config.Node) {
				n.Cluster.APIServer.ExtraArgs = append(n.Cluster.APIServer.ExtraArgs, config.Arg{Name: "etcd-prefix", Value: prefix})
			})
		}
		if _, err := withdrawKey(t.Context(), s.Env, "192.0.2.11"); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{want + "/masterleases/192.0.2.11"}, owner.asked); diff != "" {
			t.Errorf("--etcd-prefix=%s (-want +got):\n%s", prefix, diff)
		}
	}
}
