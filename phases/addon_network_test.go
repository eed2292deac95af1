// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestNetworkFits: the phase's own command does not give a cluster a flannel that is made for another one.
func TestNetworkFits(t *testing.T) {
	const document = "\n---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n" +
		"controlPlaneEndpoint: api.example.org:6443\nnetworking: {podSubnet: 10.128.0.0/14}\n" +
		"---\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
	for name, c := range map[string]struct {
		change func(*config.Node)
		want   string
	}{
		"the same":       {func(*config.Node) {}, ""},
		"another subnet": {func(n *config.Node) { n.Cluster.Networking.PodSubnet = "10.244.0.0/16" }, `flannel would get "10.244.0.0/16" for networking.podSubnet, and the cluster has "10.128.0.0/14"`},
		"no endpoint":    {func(n *config.Node) { n.Cluster.ControlPlaneEndpoint = "" }, `flannel would get "" for controlPlaneEndpoint, and the cluster has "api.example.org:6443"`},
		"iptables":       {func(n *config.Node) { n.KubeProxy.Mode = "" }, `flannel would get "" for the mode of kube-proxy, and the cluster has "nftables"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+document)
			s.play(t, uploadConfig(), addon())
			s.Config.NetworkAddOn.Name = config.Flannel
			c.change(s.Config)
			s.done = nil
			err := Run(t.Context(), s.Env, []Phase{networkAddon()}, Options{})
			if c.want == "" && (err != nil || len(s.done) == 0) {
				t.Errorf("error %v, done %q", err, s.done)
			}
			if c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || fault.Remedy(err) == "" || len(s.done) > 0) {
				t.Errorf("error %v, want %s; done %q", err, c.want, s.done)
			}
		})
	}
}
