// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/errors"

	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/fact"
)

// storedVersions has the stored configurations of clusters of several versions.
const storedVersions = "../../testdata/stored"

// TestLoadStoredVersions reads the stored configurations of clusters from 1.30 to 1.37: commands that read the configuration work
// with all of them, and a node can join clusters of the supported versions.
func TestLoadStoredVersions(t *testing.T) {
	dirs, err := os.ReadDir(storedVersions)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, dir := range dirs {
		if !dir.IsDir() {
			continue
		}
		seen++
		t.Run(dir.Name(), func(t *testing.T) {
			cluster := readFile(t, storedVersions, dir.Name(), "kubeadm-config.yaml")
			kubelet, kubeProxy := readFile(t, storedVersions, dir.Name(), "kubelet-config.yaml"), readFile(t, storedVersions, dir.Name(), "kube-proxy.yaml")
			self := &JoinConfiguration{ControlPlane: &JoinControlPlane{}}
			opts := testOptions()
			opts.AnyVersion = true
			n, warnings, err := LoadCluster(cluster, kubelet, kubeProxy, self, opts)
			if err != nil {
				t.Fatal(err)
			}
			retired := storedGates(t, cluster)
			if len(retired) > 0 {
				fact.List(t, warnings, ClusterSource+": | gates: "+strings.Join(retired, ", "))
			} else if len(warnings) > 0 {
				t.Errorf("warnings %q", warnings)
			}
			if got := n.Cluster.APIServer.ExtraArgs; len(got) != 2 || got[0].Name != "audit-log-path" || n.Cluster.Etcd.Local.ExtraArgs[0].Value != "8589934592" {
				t.Errorf("arguments %v, %v", got, n.Cluster.Etcd.Local.ExtraArgs)
			}
			data := string(must(n.KubeadmConfigYAML()))
			for _, gate := range retired {
				if !strings.Contains(data, "  "+gate+": ") {
					t.Errorf("lost %s:\n%s", gate, data)
				}
			}
			// Versions from 1.32 on have this field in all their documents.
			sameText(t, kubelet, []byte(strings.Replace(string(must(n.KubeletYAML())), "crashLoopBackOff: {}\n", "", 1-strings.Count(string(kubelet), "crashLoopBackOff"))))
			_, _, err = LoadCluster(cluster, kubelet, kubeProxy, self, testOptions())
			if supported := slices.Contains([]string{"1.35", "1.36", "1.37"}, dir.Name()); (err == nil) != supported {
				t.Errorf("error of joining: %v", err)
			}
			var faults Faults
			if err != nil && (!errors.As(err, &faults) || len(faults) != 1) {
				t.Errorf("error of joining: %v", err)
			}
			if err != nil {
				fact.Error(t, err, "v"+dir.Name(), "Kubernetes 1.35 to 1.37", "kubeadm")
			}
		})
	}
	if seen != 8 {
		t.Errorf("%d versions, want those from 1.30 to 1.37", seen)
	}
}

// storedGates are a configuration's feature gates unknown to 1.37.
func storedGates(t *testing.T, doc []byte) []string {
	t.Helper()
	var c struct {
		FeatureGates map[string]bool `json:"featureGates"`
	}
	if err := yaml.Unmarshal(doc, &c); err != nil {
		t.Fatal(err)
	}
	delete(c.FeatureGates, "RootlessControlPlane")
	return keysOf(c.FeatureGates)
}

// TestStoredVersionFault: of all faults in such a configuration, only the version is reported.
func TestStoredVersionFault(t *testing.T) {
	for name, tt := range map[string]struct{ cluster, want string }{
		"old, with values of wrong types": {storedHead + "kubernetesVersion: v1.29.0\nclusterName: 1\nnetworking: []\n", `"v1.29.0" | supported`},
		"newer apiVersion":                {"apiVersion: kubeadm.k8s.io/v1\nkind: ClusterConfiguration\n", `apiVersion: "kubeadm.k8s.io/v1" | kubeadm.k8s.io/v1beta4, kubeadm.k8s.io/v1beta3 | newer`},
		"old apiVersion":                  {"apiVersion: kubeadm.k8s.io/v1beta2\nkind: ClusterConfiguration\n", "kubeadm.k8s.io/v1beta2 | kubeadm.k8s.io/v1beta3 | `kubeadm config migrate` | v1.22 to v1.30"},
		"no apiVersion":                   {"kind: ClusterConfiguration\n", "apiVersion: | missing | kubeadm.k8s.io/v1beta4, kubeadm.k8s.io/v1beta3"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := LoadCluster([]byte(tt.cluster), nil, nil, nil, testOptions())
			var faults Faults
			if !errors.As(err, &faults) || len(faults) != 1 || !strings.HasPrefix(err.Error(), ClusterSource+":") {
				t.Errorf("got  %v\nwant %s", err, tt.want)
			}
			fact.Error(t, err, fact.Of(tt.want)...)
		})
	}
}

// TestKeep: unknown fields stay if the new document has a place for them, and replace nothing in it.
func TestKeep(t *testing.T) {
	stored := storedHead + `kubernetesVersion: v1.37.2
clusterName: old
day: 2026-01-31
etcd: {local: {dataDir: /var/lib/etcd, future: 1}}
apiServer:
  extraVolumes:
  - {name: a, hostPath: /a, mountPath: /a, future: a}
  - {name: b, hostPath: /b, mountPath: /b, future: b}
featureGates: {EtcdLearnerMode: false, Unheard: true, RootlessControlPlane: true}
`
	for _, tt := range []struct{ name, wanted, want string }{
		{"all places", `a: 1
clusterName: new
etcd: {local: {dataDir: /var/lib/other}}
apiServer: {extraVolumes: [{name: a, hostPath: /a, mountPath: /a}, {name: c, hostPath: /b, mountPath: /b}]}
day: 7
`, `a: 1
apiServer:
  extraVolumes:
  - future: a
    hostPath: /a
    mountPath: /a
    name: a
  - hostPath: /b
    mountPath: /b
    name: c
clusterName: new
day: 7
etcd:
  local:
    dataDir: /var/lib/other
    future: 1
featureGates:
  EtcdLearnerMode: false
  Unheard: true
`},
		{"another etcd", "etcd: {external: {endpoints: []}}\nfeatureGates: {RootlessControlPlane: false}\n", `day: "2026-01-31"
etcd:
  external:
    endpoints: []
featureGates:
  EtcdLearnerMode: false
  RootlessControlPlane: false
  Unheard: true
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _, err := Keep(ClusterSource, []byte(stored), []byte(tt.wanted))
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, []byte(tt.want), got)
		})
	}
	same := []byte("b: 1\na: 2\n")
	if got, warnings, err := Keep(ClusterSource, []byte(storedHead), same); string(got) != string(same) || len(warnings) > 0 || err != nil {
		t.Errorf("without anything to keep: %q, %v, %v", got, warnings, err)
	}
}

// TestManyUnknownFields: a warning stays short, however many unknown fields there are.
func TestManyUnknownFields(t *testing.T) {
	text := storedHead + "kubernetesVersion: v1.37.2\n"
	for range 1000 {
		text += "x" + strings.Repeat("y", strings.Count(text, "\n")) + ": 1\n"
	}
	_, warnings, err := LoadCluster([]byte(text), nil, nil, nil, testOptions())
	if err != nil || len(warnings) != 1 || len(warnings[0]) > 1500 || !strings.HasSuffix(warnings[0], " and 990 more") {
		t.Errorf("%q, %v", warnings, err)
	}
}
