// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// newServer forbids everything until the administrators have their rights.
type newServer struct {
	*cluster.Plan
	bound bool
}

func (c *newServer) EnsureAdmin(ctx context.Context) error {
	c.bound = true
	return c.Plan.EnsureAdmin(ctx)
}

func (c *newServer) Get(ctx context.Context, obj cluster.Object) (bool, error) {
	if !c.bound {
		return false, errors.New("403 Forbidden")
	}
	return c.Plan.Get(ctx, obj)
}

// TestNetworkInNewCluster: the network may be the first add-on to ask the API server for anything.
func TestNetworkInNewCluster(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Config.NetworkAddOn.Name, s.Config.Cluster.Networking.PodSubnet = config.Flannel, "10.244.0.0/16"
	s.Cluster = &newServer{Plan: s.API}
	s.Play(t, Network())
}

// TestNetworkFits: the phase's own command doesn't give a cluster another cluster's flannel.
func TestNetworkFits(t *testing.T) {
	const document = "\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" +
		"controlPlaneEndpoint: api.example.org:6443\nnetworking: {podSubnet: 10.128.0.0/14}\n" +
		"---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	for name, c := range map[string]struct {
		change func(*config.Node)
		want   []string
	}{
		"the same":       {func(*config.Node) {}, nil},
		"another subnet": {func(n *config.Node) { n.Cluster.Networking.PodSubnet = "10.244.0.0/16" }, []string{`"10.244.0.0/16" for networking.podSubnet`, `has "10.128.0.0/14"`}},
		"no endpoint":    {func(n *config.Node) { n.Cluster.ControlPlaneEndpoint = "" }, []string{`"" for controlPlaneEndpoint`, `has "api.example.org:6443"`}},
		"iptables":       {func(n *config.Node) { n.KubeProxy.Mode = "" }, []string{`""`, "mode of kube-proxy", `has "nftables"`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+document)
			s.Play(t, node.UploadConfig(), Install())
			s.Config.NetworkAddOn.Name = config.Flannel
			c.change(s.Config)
			s.Done = nil
			err := step.Run(t.Context(), s.Env, []step.Phase{Network()}, step.Options{})
			fact.Error(t, err, c.want...)
			if refused := c.want != nil; (len(s.Done) == 0) != refused || (fault.Remedy(err) != "") != refused {
				t.Errorf("error %v with the remedy %q; done %q", err, fault.Remedy(err), s.Done)
			}
		})
	}
}
