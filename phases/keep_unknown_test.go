// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestUploadKeepsUnknown: fields that other versions or users added to the cluster's configuration survive a new
// upload.
func TestUploadKeepsUnknown(t *testing.T) {
	for _, tt := range []struct {
		name, key string
		phase     Phase
		stored    string
		keeps     []string
		says      line
	}{
		{"kubeadm-config", "ClusterConfiguration", uploadConfig(), fixture.ClusterConfiguration + "apiServer: {timeoutForControlPlane: 4m0s}\nclusterName: old\nfutureField: {a: [1, 'x: y']}\nfeatureGates: {EtcdLearnerMode: true}\n",
			[]string{"clusterName: kubernetes\n", "futureField:\n  a:\n  - 1\n  - 'x: y'\n", "apiServer:\n  timeoutForControlPlane: 4m0s\n", "featureGates:\n  EtcdLearnerMode: true\n"},
			line{"[WARNING]", "ConfigMap kube-system/kubeadm-config: keeping fields", ": apiServer.timeoutForControlPlane, futureField"}},
		{"kubelet-config", "kubelet", uploadConfig(), fixture.KubeletConfiguration + "futureField: 1\nlogging: {futureField: 12345678901234567890}\n",
			[]string{"\nfutureField: 1\n", "  futureField: 12345678901234567890\n"},
			line{"[WARNING]", "ConfigMap kube-system/kubelet-config: keeping fields", ": futureField, logging.futureField"}},
		{"kube-proxy", "config.conf", addon(), "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nipvs: {futureField: a}\n",
			[]string{"  futureField: a\n"},
			line{"[WARNING]", "ConfigMap kube-system/kube-proxy: keeping fields", ": ipvs.futureField"}},
		{"kubelet-config", "kubelet", uploadConfig(), "broken: [", []string{"cgroupDriver: systemd"},
			line{"[WARNING]", "unknown fields", "ConfigMap kube-system/kubelet-config:"}},
	} {
		t.Run(tt.name+" "+strings.Join(tt.says, " "), func(t *testing.T) {
			s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
			if err := s.Cluster.Ensure(t.Context(), fixture.ConfigMap(tt.name, tt.key, tt.stored)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s.said.Reset()
				s.play(t, tt.phase)
			}
			text, err := cluster.ConfigMapText(t.Context(), s.Cluster, metav1.NamespaceSystem, tt.name, tt.key)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.keeps {
				if !strings.Contains(text, want) {
					t.Errorf("lacks %q:\n%s", want, text)
				}
			}
			broken := strings.HasPrefix(tt.stored, "broken") // the first run replaced it
			if n := tt.says.count(t, s.said.String()); n > 1 || (n == 0) != broken {
				t.Errorf("said %d times:\n%s", n, s.said.String())
			}
		})
	}
}

// TestJoinOldCluster: a worker joins a cluster whose configuration has fields that this version does not know. Its
// kubelet gets all of its settings.
func TestJoinOldCluster(t *testing.T) {
	for name, head := range map[string]string{"v1beta4": fixture.ClusterConfiguration, "v1beta3": strings.Replace(fixture.ClusterConfiguration, "v1beta4", "v1beta3", 1)} {
		t.Run(name, func(t *testing.T) {
			s := newJoinStage(t,
				fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", head+"useHyperKubeImage: true\nfeatureGates: {EtcdLearnerMode: true, PublicKeysECDSA: false}\n"),
				cluster.Object(fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration+"futureField: {a: true}\n")))
			if err := s.discover(t); err != nil {
				t.Fatal(err)
			}
			s.play(t, kubeletStartJoin())
			conf := s.get(t, "/var/lib/kubelet/config.yaml")
			if !strings.Contains(conf, "futureField:\n  a: true\n") || !strings.Contains(conf, "maxPods: 17\n") {
				t.Errorf("config.yaml:\n%s", conf)
			}
			want := [][]string{{"ConfigMap kube-system/kubeadm-config: keeping fields", ": useHyperKubeImage\n"},
				{"ConfigMap kube-system/kubeadm-config:", "feature gates: EtcdLearnerMode, PublicKeysECDSA\n"},
				{"ConfigMap kube-system/kubelet-config: keeping fields", ": futureField\n"}}
			if len(s.warned) != len(want) {
				t.Fatalf("warned %q", s.warned)
			}
			for i, warning := range s.warned {
				fact.In(t, warning+"\n", want[i]...)
			}
		})
	}
}
