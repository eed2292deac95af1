// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const givenResolvConf = "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nresolvConf: /etc/corp/resolv.conf\n"

// TestHostFactsStayOnTheHost: init sets the first node's name servers and patches there, and uploads neither. What the user has
// written for all nodes is uploaded as it is written.
func TestHostFactsStayOnTheHost(t *testing.T) {
	for name, tt := range map[string]struct{ documents, here, uploaded string }{
		"found":      {fixture.ClusterDocument, "resolvConf: " + config.ResolvedConf + "\n", ""},
		"the user's": {fixture.ClusterDocument + givenResolvConf, "resolvConf: /etc/corp/resolv.conf\n", "resolvConf: /etc/corp/resolv.conf\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+tt.documents)
			s.put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
			s.put(t, "/patches/kubeletconfiguration.yaml", "maxPods: 7\n")
			patched := *s.Config
			patched.PatchesDir = "/patches"
			s.Config = &patched
			s.play(t, kubeletStart(), uploadConfig())
			here := s.get(t, "/var/lib/kubelet/config.yaml")
			fact.In(t, here, tt.here, "maxPods: 7\n", "containerRuntimeEndpoint: unix://")
			uploaded, err := cluster.ConfigMapText(t.Context(), s.api, "kube-system", "kubelet-config", "kubelet")
			fatal(t, err)
			if tt.uploaded != "" {
				fact.In(t, uploaded, tt.uploaded)
			} else {
				fact.NotIn(t, uploaded, "resolvConf")
			}
			fact.NotIn(t, uploaded, "maxPods", "unix://")
		})
	}
}

// TestUpgradeUploadsNoHostFacts: neither does `upgrade apply`, whatever the node that it runs on has.
func TestUpgradeUploadsNoHostFacts(t *testing.T) {
	s := newJoinStage(t)
	s.put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	fatal(t, s.discover(t))
	s.Cluster = s.api
	s.play(t, uploadConfig())
	uploaded, err := cluster.ConfigMapText(t.Context(), s.api, "kube-system", "kubelet-config", "kubelet")
	fatal(t, err)
	fact.In(t, uploaded, "maxPods: 17\n")
	fact.NotIn(t, uploaded, "resolvConf")
}

// TestJoinCorrectsPaths: what another node has set and this one doesn't have is corrected, and named.
func TestJoinCorrectsPaths(t *testing.T) {
	stored := fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration+"resolvConf: "+config.ResolvedConf+"\n")
	s := newJoinStage(t, stored)
	fatal(t, s.discover(t))
	s.play(t, kubeletStartJoin())
	fact.NotIn(t, s.get(t, "/var/lib/kubelet/config.yaml"), "resolvConf")
	s.saidOnce(t, line{"[WARNING]", "ConfigMap kube-system/kubelet-config", "resolvConf", config.ResolvedConf, "/etc/resolv.conf"})

	s.put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	if err := os.Remove(filepath.Join(s.root, "/var/lib/kubelet/config.yaml")); err != nil {
		t.Fatal(err)
	}
	s.said.Reset()
	s.play(t, kubeletStartJoin())
	fact.In(t, s.get(t, "/var/lib/kubelet/config.yaml"), "resolvConf: "+config.ResolvedConf)
	fact.NotIn(t, s.said.String(), "[WARNING]")
}

// TestUpgradeFitsTheHost: an upgrade finds the name servers again, as they are now.
func TestUpgradeFitsTheHost(t *testing.T) {
	s := newJoinStage(t)
	fatal(t, s.discover(t))
	n := *s.Config
	n.Join, n.Upgrade = nil, &config.Upgrade{}
	s.Config = &n
	s.put(t, "/var/lib/kubelet/instance-config.yaml", "containerRuntimeEndpoint: unix:///run/own.sock\n")
	s.put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nresolvConf: "+config.ResolvedConf+"\nmaxPods: 17\n")
	s.play(t, upgradeKubeletConfig())
	got := s.get(t, "/var/lib/kubelet/config.yaml")
	fact.In(t, got, "containerRuntimeEndpoint: unix:///run/own.sock")
	fact.NotIn(t, got, "resolvConf")
	s.put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	s.play(t, upgradeKubeletConfig())
	fact.In(t, s.get(t, "/var/lib/kubelet/config.yaml"), "resolvConf: "+config.ResolvedConf)
}
