// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"
	"testing"

	"github.com/pkg/errors"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/test/fact"
)

// stored returns a ConfigMap's value, left in a cluster by kubeadm's init.
func stored(t testing.TB, name, key string) []byte {
	t.Helper()
	var cm corev1.ConfigMap
	if err := yaml.Unmarshal(readFile(t, golden, "cluster", "kube-system_configmap_"+name+".yaml"), &cm); err != nil {
		t.Fatal(err)
	}
	if cm.Data[key] == "" {
		t.Fatalf("%s has no key %s", name, key)
	}
	return []byte(cm.Data[key])
}

// TestLoadClusterReference: reading kubeadm's cluster gives the same as init with the same input.
func TestLoadClusterReference(t *testing.T) {
	self := &JoinConfiguration{ControlPlane: &JoinControlPlane{CertificateKey: strings.Repeat("0", 64)}}
	n, warnings, err := LoadCluster(stored(t, "kubeadm-config", "ClusterConfiguration"),
		stored(t, "kubelet-config", "kubelet"), stored(t, "kube-proxy", "config.conf"), self, testOptions())
	if err != nil || len(warnings) > 0 {
		t.Fatal(warnings, err)
	}
	for _, c := range []struct{ name, key, want string }{
		{"kubeadm-config", "ClusterConfiguration", string(must(n.KubeadmConfigYAML()))},
		{"kubelet-config", "kubelet", string(must(n.KubeletYAML()))},
	} {
		sameText(t, stored(t, c.name, c.key), []byte(c.want))
	}
	if n.Name != "vm" || n.LocalEndpoint() != "192.168.99.11:6443" || !n.ControlPlane || len(n.Taints) != 1 ||
		n.CertificateKey.IsZero() || len(n.BootstrapTokens) != 0 {
		t.Errorf("%+v", n)
	}
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

func TestLoadClusterWorker(t *testing.T) {
	n, _, err := LoadCluster(stored(t, "kubeadm-config", "ClusterConfiguration"), nil, nil, nil, testOptions())
	if err != nil {
		t.Fatal(err)
	}
	if n.ControlPlane || n.AdvertiseAddress.IsValid() || len(n.Taints) != 0 || n.Timeouts != defaultLimits() {
		t.Errorf("%+v", n)
	}
}

const storedHead = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"

func TestLoadClusterFaults(t *testing.T) {
	for _, c := range []struct{ name, cluster, want string }{
		{"empty", "", "ConfigMap kube-system/kubeadm-config: | 0 documents | ClusterConfiguration"},
		{"two", storedHead + "---\n" + storedHead, "ConfigMap kube-system/kubeadm-config: | 2 documents | ClusterConfiguration"},
		{"kind", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n", `ConfigMap kube-system/kubeadm-config:2: kind: | ClusterConfiguration | "InitConfiguration"`},
		{"no mapping", "[]", `ConfigMap kube-system/kubeadm-config:1: kind: | ClusterConfiguration | ""`},
		{"type of an unknown gate", storedHead + "kubernetesVersion: v1.37.2\nfeatureGates: {EtcdLearnerMode: \"yes\"}\n", "ConfigMap kube-system/kubeadm-config:4: featureGates.EtcdLearnerMode: | true | false | quoted string"},
		{"no version", storedHead, "ConfigMap kube-system/kubeadm-config:1: kubernetesVersion: | missing"},
		{"label", storedHead + "kubernetesVersion: stable-1\n", `ConfigMap kube-system/kubeadm-config:3: kubernetesVersion: | "stable-1" | exact version | v1.37.2`},
		{"old", storedHead + "kubernetesVersion: v1.30.1\n", `ConfigMap kube-system/kubeadm-config:3: kubernetesVersion: | "v1.30.1" | Kubernetes 1.35 to 1.37`},
		{"new", storedHead + "kubernetesVersion: v1.99.0\n", `ConfigMap kube-system/kubeadm-config:3: kubernetesVersion: | "v1.99.0" | Kubernetes 1.35 to 1.37`},
		{"relative path", storedHead + "kubernetesVersion: v1.37.2\ncertificatesDir: pki\n", `ConfigMap kube-system/kubeadm-config:4: certificatesDir: | "pki" | absolute`},
		{"winding path", storedHead + "kubernetesVersion: v1.37.2\ncertificatesDir: /etc/kubernetes/pki/../../ssh\n", `ConfigMap kube-system/kubeadm-config:4: certificatesDir: | "/etc/kubernetes/pki/../../ssh" | /etc/ssh`},
		{"control character", storedHead + "kubernetesVersion: v1.37.2\nclusterName: \"a\\nb\"\n", "ConfigMap kube-system/kubeadm-config:4: clusterName: | control character"},
		{"etcd path", storedHead + "kubernetesVersion: v1.37.2\netcd: {local: {dataDir: /var/lib//etcd}}\n", `ConfigMap kube-system/kubeadm-config:4: etcd.local.dataDir: | "/var/lib//etcd" | /var/lib/etcd`},
		{"overlap", storedHead + "kubernetesVersion: v1.37.2\nnetworking: {serviceSubnet: 192.168.0.0/16}\n", "controlPlane.localAPIEndpoint.advertiseAddress: | 192.168.99.11 | networking.serviceSubnet 192.168.0.0/16"},
		{"too large", strings.Repeat("#", MaxSize+1), "ConfigMap kube-system/kubeadm-config: | 1 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			self := &JoinConfiguration{ControlPlane: &JoinControlPlane{}}
			_, _, err := LoadCluster([]byte(c.cluster), nil, nil, self, testOptions())
			var faults Faults
			if !errors.As(err, &faults) {
				t.Errorf("%T is not a list of faults", err)
			}
			fact.Error(t, err, fact.Of(c.want)...)
		})
	}
}
