// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"slices"
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
	if n.ControlPlane || n.AdvertiseAddress.IsValid() || len(n.Taints) != 0 || n.Timeouts != DefaultLimits() {
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
		{"etcd path", storedHead + "kubernetesVersion: v1.37.2\netcd: {local: {dataDir: /var/lib/x/../etcd}}\n", `ConfigMap kube-system/kubeadm-config:4: etcd.local.dataDir: | "/var/lib/x/../etcd" | /var/lib/etcd`},
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

// TestPathsInShortestForm: init stores paths that it can load again, and kubeadm's may have a slash too many.
func TestPathsInShortestForm(t *testing.T) {
	const local, external = "certificatesDir: /opt//pki/\netcd: {local: {dataDir: /srv/etcd/.}}\n",
		"certificatesDir: /opt/pki/\netcd: {external: {endpoints: [\"https://192.0.2.5:2379\"], caFile: //srv/ca, certFile: /srv/./cert, keyFile: /srv/key/}}\n"
	check := func(n *Node) {
		t.Helper()
		paths := []string{n.Paths.PKI, n.Cluster.CertificatesDir}
		for _, p := range n.Cluster.paths()[1:] {
			paths = append(paths, *p.value)
		}
		want := []string{"/opt/pki", "/opt/pki", "/srv/etcd"}
		if n.Cluster.Etcd.External != nil {
			want = []string{"/opt/pki", "/opt/pki", "/srv/ca", "/srv/cert", "/srv/key"}
		}
		if !slices.Equal(paths, want) {
			t.Errorf("%q, want %q", paths, want)
		}
	}
	for _, fields := range []string{local, external} {
		first := mustLoad(t, file("", fields), InitFlags{}, testOptions())
		check(first)
		for _, doc := range []string{string(must(first.KubeadmConfigYAML())), storedHead + "kubernetesVersion: v1.37.2\n" + fields} {
			n, warnings, err := LoadCluster([]byte(doc), nil, nil, nil, testOptions())
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			check(n)
		}
	}
}

// asControlPlane returns the flags of a joining control plane.
func asControlPlane(more ...string) JoinFlags {
	return JoinFlags{Given: append([]string{"control-plane", "discovery-file"}, more...), ControlPlane: true, DiscoveryFile: "/x"}
}

// TestFamilyOfJoin: a host with addresses of both families advertises that of the cluster's first network of Services.
func TestFamilyOfJoin(t *testing.T) {
	const v4, v6 = "10.96.0.0/12", "fd00:96::/112"
	opts := testOptions()
	opts.Facts.IPv6 = netip.MustParseAddr("fd00:99::11")
	other := asControlPlane("apiserver-advertise-address")
	other.APIServerAdvertiseAddress = "192.168.99.12"
	for _, tt := range []struct {
		services string
		flags    JoinFlags
		want     string
	}{
		{v6 + "," + v4, asControlPlane(), "fd00:99::11"},
		{v4 + "," + v6, asControlPlane(), "192.168.99.11"},
		{v4, other, "192.168.99.12"},
		{v6 + "," + v4, other, ""},
	} {
		self, _, err := LoadJoin(nil, tt.flags, opts)
		if err != nil {
			t.Fatal(err)
		}
		n, warnings, err := LoadCluster([]byte(storedHead+"kubernetesVersion: v1.37.2\nnetworking: {serviceSubnet: \""+tt.services+"\"}\n"), nil, nil, self, opts)
		if tt.want == "" {
			fact.Error(t, err, "networking.serviceSubnet:", v6, "192.168.99.12")
			continue
		}
		if err != nil || len(warnings) > 0 || n.AdvertiseAddress.String() != tt.want {
			t.Errorf("%s: %v, %q, %v", tt.services, n, warnings, err)
		}
	}
	if _, _, err := LoadJoin(nil, asControlPlane(), Options{Facts: HostFacts{Hostname: "vm"}}); err == nil {
		t.Error("a host without an address joins as a control plane")
	}
}

// TestPullsSideBySide: v1beta4's default isn't the user's wish.
func TestPullsSideBySide(t *testing.T) {
	join := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\ncontrolPlane: {}\n"
	upgrade := "apiVersion: kubeadm.k8s.io/v1beta4\nkind: UpgradeConfiguration\n"
	serial := func(self *JoinConfiguration) bool {
		t.Helper()
		n, _, err := LoadCluster([]byte(storedHead+"kubernetesVersion: v1.37.2\n"), nil, nil, self, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		return n.ImagePullSerial
	}
	for given, want := range map[string]bool{"": false, "imagePullSerial: false": false, "imagePullSerial: true": true} {
		self, _, err := LoadJoin(asSource(join+"nodeRegistration: {"+given+"}\n"), JoinFlags{}, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		if got := serial(self); got != want {
			t.Errorf("join with %q: %t", given, got)
		}
		for command, part := range map[string]string{upgradeApply: "apply", upgradeNode: "node"} {
			u, _, err := LoadUpgrade(t.Context(), asSource(upgrade+part+": {"+given+"}\n"), UpgradeFlags{Command: command}, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			if got := serial(&JoinConfiguration{NodeRegistration: NodeRegistrationOptions{ImagePullSerial: u.ImagePullSerial}}); got != want {
				t.Errorf("%s with %q: %t", command, given, got)
			}
		}
	}
	self, _, err := LoadJoin(nil, asControlPlane(), testOptions())
	if err != nil || serial(self) {
		t.Errorf("join by flags: %v, %v", self, err)
	}
}

// TestStoredOverlaps: a cluster that already lives with such networks can still be joined, upgraded and reconfigured.
func TestStoredOverlaps(t *testing.T) {
	at := func(address string) *JoinConfiguration {
		return &JoinConfiguration{ControlPlane: &JoinControlPlane{LocalAPIEndpoint: APIEndpoint{AdvertiseAddress: address}}}
	}
	for _, tt := range []struct {
		pods string
		self *JoinConfiguration
		want string
	}{
		{"10.0.0.0/8", nil, ClusterSource + ":4: networking.podSubnet: | 10.0.0.0/8 | networking.serviceSubnet 10.96.0.0/12"},
		{"192.168.0.0/16", at("192.168.1.5"), "controlPlane.localAPIEndpoint.advertiseAddress: | 192.168.1.5 | networking.podSubnet 192.168.0.0/16"},
		{"10.244.0.0/16", at("10.100.1.5"), "controlPlane.localAPIEndpoint.advertiseAddress: | 10.100.1.5 | networking.serviceSubnet 10.96.0.0/12"},
	} {
		n, warnings, err := LoadCluster([]byte(storedHead+"kubernetesVersion: v1.37.2\nnetworking: {podSubnet: "+tt.pods+"}\n"), nil, nil, tt.self, testOptions())
		if err != nil {
			t.Fatal(err)
		}
		if n.Cluster.Networking.PodSubnet != tt.pods {
			t.Errorf("Pod network %s, want %s", n.Cluster.Networking.PodSubnet, tt.pods)
		}
		fact.List(t, warnings, tt.want)
	}
}

// TestAssumedNetworks: this host's address may be within default networks that the cluster needn't have, and of another family.
func TestAssumedNetworks(t *testing.T) {
	for _, address := range []string{"10.100.1.5", "10.96.0.1", "2001:db8::5"} {
		self := &JoinConfiguration{ControlPlane: &JoinControlPlane{LocalAPIEndpoint: APIEndpoint{AdvertiseAddress: address}}}
		n, warnings, err := LoadCluster(DefaultCluster(), nil, nil, self, testOptions())
		if err != nil || len(warnings) > 0 || n.AdvertiseAddress.String() != address {
			t.Errorf("%s: %+v, %q, %v", address, n, warnings, err)
		}
	}
}

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
			got, _, err := MergeUnknownFields(ClusterSource, []byte(stored), []byte(tt.wanted))
			if err != nil {
				t.Fatal(err)
			}
			sameText(t, []byte(tt.want), got)
		})
	}
	same := []byte("b: 1\na: 2\n")
	if got, warnings, err := MergeUnknownFields(ClusterSource, []byte(storedHead), same); string(got) != string(same) || len(warnings) > 0 || err != nil {
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
