// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestUpgradeUploadsNoHostFacts: `upgrade apply` doesn't upload settings of its own host.
func TestUpgradeUploadsNoHostFacts(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.Put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	phasetest.Fatal(t, s.Discover(t))
	s.Cluster = s.API
	s.Play(t, node.UploadConfig())
	uploaded, err := cluster.ConfigMapText(t.Context(), s.API, "kube-system", "kubelet-config", "kubelet")
	phasetest.Fatal(t, err)
	fact.In(t, uploaded, "maxPods: 17\n")
	fact.NotIn(t, uploaded, "resolvConf")
}

// TestUpgradeFitsTheHost: an upgrade looks up the host's name servers again.
func TestUpgradeFitsTheHost(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	phasetest.Fatal(t, s.Discover(t))
	n := *s.Config
	n.Join, n.Upgrade = nil, &config.Upgrade{}
	s.Config = &n
	s.Put(t, "/var/lib/kubelet/instance-config.yaml", "containerRuntimeEndpoint: unix:///run/own.sock\n")
	s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nresolvConf: "+config.ResolvedConf+"\nmaxPods: 17\n")
	s.Play(t, upgradeKubeletConfig())
	got := s.Get(t, "/var/lib/kubelet/config.yaml")
	fact.In(t, got, "containerRuntimeEndpoint: unix:///run/own.sock")
	fact.NotIn(t, got, "resolvConf")
	s.Put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	s.Play(t, upgradeKubeletConfig())
	fact.In(t, s.Get(t, "/var/lib/kubelet/config.yaml"), "resolvConf: "+config.ResolvedConf)
}
