// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// JoinStage is a host that will join a cluster by a discovery file, with that cluster's API.
type JoinStage struct {
	*Stage
	CA     fixture.Pair
	API    *cluster.Plan
	Warned []string // by the discovery
}

func NewJoinStage(t *testing.T, objs ...cluster.Object) *JoinStage {
	t.Helper()
	s := &JoinStage{Stage: NewStage(t, fixture.InitDocument+fixture.ClusterDocument), CA: fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour))}
	s.API = fixture.API(t, objs...)
	s.Put(t, "/discovery.conf", fixture.Kubeconfig(s.CA, ""))
	return s
}

func (s *JoinStage) Discover(t *testing.T) error {
	t.Helper()
	opts := config.Options{Facts: config.HostFacts{Hostname: "worker-1"}}
	self, _, err := config.LoadJoin(nil, fixture.DiscoveryFlags("worker-1"), opts)
	if err != nil {
		t.Fatal(err)
	}
	d := &joining.Discovery{Host: s.FakeHost, UI: s.UI, Options: opts, Connect: func([]byte) cluster.Cluster { return s.API }}
	n, warnings, err := d.Node(t.Context(), self)
	if s.Warned = warnings; err == nil {
		s.Config = n
	}
	return err
}

// Bootstrapped writes the kubelet's files as once its certificate is signed.
func (s *JoinStage) Bootstrapped(t *testing.T, ca fixture.Pair, name string, until time.Time) {
	t.Helper()
	fixture.BootstrapKubelet(t, s.Root, ca, name, until)
}
