// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestKubeletFlagsAsWritten: the kubelet takes a value after a space, and underscores for dashes, wherever a flag is.
func TestKubeletFlagsAsWritten(t *testing.T) {
	const env, defaults, dropIn = "/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/systemd/system/kubelet.service.d/20.conf"
	for name, put := range map[string]func(s *stage, flag, value string){
		"in kubeadm-flags.env": func(s *stage, f, v string) { fixture.Put(t, s.root, env, `KUBELET_KUBEADM_ARGS="--v=2 --`+f+"="+v+`"`) },
		"there, after a space": func(s *stage, f, v string) { fixture.Put(t, s.root, env, `KUBELET_KUBEADM_ARGS="--v=2 --`+f+" "+v+`"`) },
		"an administrator's":   func(s *stage, f, v string) { fixture.Put(t, s.root, defaults, "KUBELET_EXTRA_ARGS=--"+f+"="+v) },
		"in a drop-in of its unit": func(s *stage, f, v string) {
			fixture.Put(t, s.root, dropIn, "[Service]\nEnvironment=\"X=--"+f+" "+v+"\"\n")
		},
		"in the node's description": func(s *stage, f, v string) { s.node.KubeletExtraArgs = []config.Arg{{Name: f, Value: v}} },
	} {
		t.Run(name, func(t *testing.T) {
			for _, form := range []struct{ dir, name, port string }{{"cert-dir", "hostname-override", "healthz-port"}, {"cert_dir", "hostname_override", "healthz_port"}} {
				s := newStage(t)
				put(s, form.dir, "/srv/k")
				if got := KubeletClientPEM(s.host, &s.node.Machine); filepath.Dir(got) != "/srv/k" {
					t.Errorf("--%s: %s", form.dir, got)
				}
				put(s, form.name, "other")
				if got := RegisteredName(s.host, s.node); got != "other" {
					t.Errorf("--%s: %s", form.name, got)
				}
				put(s, form.port, "10300")
				if got, err := KubeletSettings(s.host, &s.node.Machine); err != nil || got.HealthzPort == nil || *got.HealthzPort != 10300 {
					t.Errorf("--%s: %v, %v", form.port, got.HealthzPort, err)
				}
			}
		})
	}
	s := newStage(t)
	fixture.Put(t, s.root, env, `KUBELET_KUBEADM_ARGS="--container_runtime_endpoint unix:///srv/c.sock"`)
	if got := KubeletSocket(s.host); got != "unix:///srv/c.sock" {
		t.Errorf("socket %s", got)
	}
}
