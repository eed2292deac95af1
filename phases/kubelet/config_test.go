// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const givenResolvConf = "---\napiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nresolvConf: /etc/corp/resolv.conf\n"

// TestHostFactsStayOnTheHost: init sets the first node's name servers and patches there, and uploads neither. The user's settings
// for all nodes are uploaded as written.
func TestHostFactsStayOnTheHost(t *testing.T) {
	for name, tt := range map[string]struct{ documents, here, uploaded string }{
		"found":      {fixture.ClusterDocument, "resolvConf: " + config.ResolvedConf + "\n", ""},
		"the user's": {fixture.ClusterDocument + givenResolvConf, "resolvConf: /etc/corp/resolv.conf\n", "resolvConf: /etc/corp/resolv.conf\n"},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+tt.documents)
			s.Put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
			s.Put(t, "/patches/kubeletconfiguration.yaml", "maxPods: 7\n")
			patched := *s.Config
			patched.PatchesDir = "/patches"
			s.Config = &patched
			s.Play(t, Start(), node.UploadConfig())
			here := s.Get(t, "/var/lib/kubelet/config.yaml")
			fact.In(t, here, tt.here, "maxPods: 7\n", "containerRuntimeEndpoint: unix://")
			uploaded, err := cluster.ConfigMapText(t.Context(), s.API, "kube-system", "kubelet-config", "kubelet")
			phasetest.Fatal(t, err)
			if tt.uploaded != "" {
				fact.In(t, uploaded, tt.uploaded)
			} else {
				fact.NotIn(t, uploaded, "resolvConf")
			}
			fact.NotIn(t, uploaded, "maxPods", "unix://")
		})
	}
}

// TestJoinCorrectsPaths: paths that another node has set and this one lacks are corrected, and named.
func TestJoinCorrectsPaths(t *testing.T) {
	stored := fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration+"resolvConf: "+config.ResolvedConf+"\n")
	s := phasetest.NewJoinStage(t, stored)
	phasetest.Fatal(t, s.Discover(t))
	s.Play(t, StartJoin())
	fact.NotIn(t, s.Get(t, "/var/lib/kubelet/config.yaml"), "resolvConf")
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "ConfigMap kube-system/kubelet-config", "resolvConf", config.ResolvedConf, "/etc/resolv.conf"})

	s.Put(t, config.ResolvedConf, "nameserver 192.0.2.53\n")
	if err := os.Remove(filepath.Join(s.Root, "/var/lib/kubelet/config.yaml")); err != nil {
		t.Fatal(err)
	}
	s.Said.Reset()
	s.Play(t, StartJoin())
	fact.In(t, s.Get(t, "/var/lib/kubelet/config.yaml"), "resolvConf: "+config.ResolvedConf)
	fact.NotIn(t, s.Said.String(), "[WARNING]")
}
