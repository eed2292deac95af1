// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// withKubeletFlags has the documents of a node whose kubelet gets flags.
func withKubeletFlags(flags string) string {
	return strings.Replace(fixture.InitDocument, "{name: cp-1,", "{name: cp-1, kubeletExtraArgs: ["+flags+"],", 1) + fixture.ClusterDocument
}

// TestKubeletIsWaitedForWhereItAnswers: patches and flags may move its health
// endpoint.
func TestKubeletIsWaitedForWhereItAnswers(t *testing.T) {
	const patched = fixture.InitDocument + "patches: {directory: /patches}\n" + fixture.ClusterDocument
	for _, tt := range []struct{ name, documents, patch, want string }{
		{"as usual", fixture.InitDocument + fixture.ClusterDocument, "", kubeletURL},
		{"patched port", patched, "healthzPort: 10300", "http://127.0.0.1:10300/healthz"},
		{"patched address", patched, "healthzBindAddress: '::1'", "http://[::1]:10248/healthz"},
		{"patched away", patched, "healthzPort: 0", ""},
		{"settings of their own defaults", patched, "{healthzPort: null, healthzBindAddress: null}", kubeletURL},
		{"port by flag, the last one", withKubeletFlags("{name: healthz-port, value: '10301'}, {name: healthz-port, value: '10302'}"), "",
			"http://127.0.0.1:10302/healthz"},
		{"address by flag", withKubeletFlags("{name: healthz-bind-address, value: 10.1.2.3}"), "", "http://10.1.2.3:10248/healthz"},
		{"no endpoint by flag", withKubeletFlags("{name: healthz-port, value: '0'}"), "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, answers := waitStage(t, tt.documents)
			s.put(t, "/patches/kubeletconfiguration.yaml", tt.patch)
			s.play(t, kubeletStart())
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			if diff := cmp.Diff(want, answers.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			// A command that does not know this node's configuration.
			s.Config.KubeletExtraArgs, answers.asked = nil, nil
			if err := waitKubelet(t.Context(), s.Env); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(want, answers.asked); diff != "" {
				t.Errorf("without the configuration, asked (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAdministratorsFlagsCount: the unit of the packages puts them last.
func TestAdministratorsFlagsCount(t *testing.T) {
	s := newStage(t, withKubeletFlags("{name: healthz-port, value: '10301'}, {name: rotate-certificates, value: 'false'}"))
	s.put(t, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\nEnvironment=\"A=--rotate-certificates\"\n")
	s.put(t, "/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--healthz-port=10303 --healthz-bind-address=$IP\n")
	settings, err := thisnode.KubeletSettings(s.Host, s.Config)
	if err != nil || *settings.HealthzPort != 10303 || !settings.RotateCertificates || settings.HealthzBindAddress == "$IP" {
		t.Errorf("%+v, %v", settings, err)
	}
}

func TestKubeletSettingsThatAreNone(t *testing.T) {
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.put(t, "/var/lib/kubelet/config.yaml", "{")
	if err := waitKubelet(t.Context(), s.Env); !strings.HasPrefix(message(err), "/var/lib/kubelet/config.yaml: not a KubeletConfiguration: ") {
		t.Errorf("error %q", message(err))
	}
}
