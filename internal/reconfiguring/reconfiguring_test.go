// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"errors"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const (
	ofCluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"
	ofKubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	ofProxy   = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
)

// loaded merges documents over those of a cluster of v1.37.2 with an API server's flag and a field of a newer version.
func loaded(t *testing.T, documents string) (*Change, []string, error) {
	t.Helper()
	return live(t).Load(t.Context(), &config.Source{Name: "change.yaml", Data: []byte(documents)})
}

// live is that cluster, with its control plane.
func live(t *testing.T) Loader {
	t.Helper()
	api := cluster.NewPlan(func(cluster.Action) {}, nil)
	err := api.Ensure(t.Context(),
		fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", fixture.ClusterConfiguration+"aNewerField: {kept: true}\nnetworking: {podSubnet: 10.244.0.0/16}\n"+
			"apiServer: {extraArgs: [{name: v, value: \"2\"}], certSANs: [api.example.org]}\n"),
		fixture.ConfigMap("kubelet-config", "kubelet", ofKubelet+"maxPods: 17\nclusterDomain: cluster.local\n"),
		fixture.ConfigMap("kube-proxy", "config.conf", ofProxy+"mode: iptables\nclusterCIDR: 10.244.0.0/16\n"),
		kubeProxy())
	if err != nil {
		t.Fatal(err)
	}
	return ofControlPlane(api)
}

func kubeProxy() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: metav1.NamespaceSystem}}
}

func ofControlPlane(api cluster.Cluster) Loader {
	self := &config.JoinConfiguration{ControlPlane: &config.JoinControlPlane{LocalAPIEndpoint: config.APIEndpoint{AdvertiseAddress: "192.0.2.11"}}}
	self.NodeRegistration.Name = "cp-1"
	return Loader{api, self, config.Options{Facts: config.HostFacts{Hostname: "cp-1"}}}
}

// TestMerge: a field that isn't mentioned stays, null takes a field back to its default, and a list replaces the list.
func TestMerge(t *testing.T) {
	for name, test := range map[string]struct {
		documents string
		changed   []string
		holds     func(n *config.Node) bool
	}{
		"nothing": {ofCluster, nil, func(n *config.Node) bool { return len(n.Cluster.APIServer.ExtraArgs) == 1 }},
		"what it is already": {ofCluster + "networking: {podSubnet: 10.244.0.0/16, dnsDomain: cluster.local}\nkubernetesVersion: v1.37.2\n", nil,
			func(n *config.Node) bool { return n.Cluster.KubernetesVersion == "v1.37.2" }},
		"a list": {ofCluster + "apiServer: {extraArgs: [{name: profiling, value: \"false\"}]}\n", []string{"apiServer.extraArgs"}, func(n *config.Node) bool {
			s := n.Cluster.APIServer
			return len(s.ExtraArgs) == 1 && s.ExtraArgs[0].Name == "profiling" && slices.Equal(s.CertSANs, []string{"api.example.org"})
		}},
		"null": {ofCluster + "apiServer: {extraArgs: null}\n", []string{"apiServer.extraArgs"}, func(n *config.Node) bool {
			return len(n.Cluster.APIServer.ExtraArgs) == 0 && len(n.Cluster.APIServer.CertSANs) == 1
		}},
		"v1beta3": {strings.Replace(ofCluster, "v1beta4", "v1beta3", 1) + "scheduler: {extraArgs: {v: \"4\"}}\n", []string{"scheduler.extraArgs"},
			func(n *config.Node) bool { return n.Cluster.Scheduler.ExtraArgs[0].Value == "4" }},
		"the kubelet's": {ofKubelet + "maxPods: 250\n", []string{"maxPods"}, func(n *config.Node) bool {
			return n.Kubelet.MaxPods == 250 && n.Kubelet.ClusterDomain == "cluster.local"
		}},
		"kube-proxy's": {ofProxy + "mode: nftables\n", []string{"mode"}, func(n *config.Node) bool {
			return n.KubeProxy.Mode == "nftables" && n.KubeProxy.ClusterCIDR == "10.244.0.0/16"
		}},
		"all of them": {ofCluster + "imageRepository: example.org\n---\n" + ofKubelet + "maxPods: 250\n---\n" + ofProxy + "mode: nftables\n",
			[]string{"imageRepository", "maxPods", "mode"}, func(n *config.Node) bool { return n.Cluster.ImageRepository == "example.org" }},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, err := loaded(t, test.documents)
			if err != nil {
				t.Fatal(err)
			}
			var changed []string
			for _, f := range c.Fields {
				changed = append(changed, f.Path)
			}
			if !slices.Equal(changed, test.changed) || !test.holds(c.Node) {
				t.Errorf("changed %q, want %q: %+v", changed, test.changed, c.Node.Cluster)
			}
			stored, err := c.Node.KubeadmConfigYAML()
			if err != nil || !strings.Contains(string(stored), "aNewerField") {
				t.Errorf("lost a field of a newer version: %v\n%s", err, stored)
			}
			before := c.Node.Upgrade.Before
			if before.Kubelet.MaxPods != 17 || before.Cluster.APIServer.ExtraArgs[0].Value != "2" || c.Node.Upgrade.Version != c.Node.Upgrade.From {
				t.Errorf("before: %+v", before.Cluster)
			}
		})
	}
}

// TestFaults: a fault has the line of the user's document that causes it.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		documents string
		want      []string
	}{
		"a misspelled field":            {ofCluster + "apiServer:\n  extraArg: []\n", []string{"change.yaml:4:", "apiServer.extraArg", "extraArgs"}},
		"an invalid value":              {ofCluster + "networking:\n  serviceSubnet: 10.96.0.0\n", []string{"change.yaml:4:", "networking.serviceSubnet"}},
		"an invalid kube-proxy":         {ofProxy + "bindAddress: here\n", []string{"change.yaml:3:", "bindAddress"}},
		"only other documents":          {"apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n", []string{"change.yaml:", "InitConfiguration", "KubeletConfiguration"}},
		"podSubnet":                     {ofCluster + "networking:\n  podSubnet: 10.10.0.0/16\n", []string{"change.yaml:4:", "networking.podSubnet"}},
		"serviceSubnet":                 {ofCluster + "networking: {serviceSubnet: 10.97.0.0/16}\n", []string{"change.yaml:3:", "networking.serviceSubnet"}},
		"dnsDomain":                     {ofCluster + "networking: {dnsDomain: example.org}\n", []string{"change.yaml:3:", "networking.dnsDomain"}},
		"kubernetesVersion":             {ofCluster + "kubernetesVersion: v1.37.1\n", []string{"change.yaml:3:", "kubernetesVersion", "`slipway upgrade apply`"}},
		"clusterName":                   {ofCluster + "clusterName: other\n", []string{"change.yaml:3:", "clusterName"}},
		"encryptionAlgorithm":           {ofCluster + "encryptionAlgorithm: ECDSA-P256\n", []string{"change.yaml:3:", "encryptionAlgorithm"}},
		"certificatesDir":               {ofCluster + "certificatesDir: /srv/pki\n", []string{"change.yaml:3:", "certificatesDir"}},
		"a feature gate":                {ofCluster + "featureGates: {RootlessControlPlane: true}\n", []string{"change.yaml:3:", "featureGates"}},
		"etcd's data":                   {ofCluster + "etcd:\n  local:\n    dataDir: /srv/etcd\n", []string{"change.yaml:5:", "etcd.local.dataDir"}},
		"another etcd":                  {ofCluster + "etcd:\n  local: null\n  external: {endpoints: [\"https://192.0.2.1:2379\"], caFile: /ca, certFile: /crt, keyFile: /key}\n", []string{"change.yaml:4:", "etcd.local", "etcd.external"}},
		"etcd's version":                {ofCluster + "etcd: {local: {imageTag: 3.7.1-0}}\n", []string{"etcd.local.imageTag", "`slipway upgrade apply`"}},
		"etcd's feature gates":          {ofCluster + "etcd: {local: {extraArgs: [{name: feature-gates, value: X=true}]}}\n", []string{"etcd.local.extraArgs", "--feature-gates"}},
		"etcd's data by a flag":         {ofCluster + "etcd: {local: {extraArgs: [{name: data-dir, value: /var/lib/etcd2}]}}\n", []string{"etcd.local.extraArgs", "--data-dir"}},
		"etcd's log by a variable":      {ofCluster + "etcd: {local: {extraEnvs: [{name: ETCD_WAL_DIR, value: /x}]}}\n", []string{"etcd.local.extraEnvs", "ETCD_WAL_DIR"}},
		"another store":                 {ofCluster + "apiServer: {extraArgs: [{name: etcd-prefix, value: /other}]}\n", []string{"change.yaml:3:", "apiServer.extraArgs", "--etcd-prefix"}},
		"as the components may read it": {ofCluster + "apiServer: {extraArgs: [{name: etcd_servers, value: \"https://192.0.2.1:2379\"}]}\n", []string{"--etcd-servers"}},
		"serviceSubnet by a flag":       {ofCluster + "controllerManager: {extraArgs: [{name: service-cluster-ip-range, value: 10.97.0.0/16}]}\n", []string{"controllerManager.extraArgs", "--service-cluster-ip-range"}},
		"encryption":                    {ofCluster + "apiServer: {extraArgs: [{name: encryption-provider-config, value: /x}]}\n", []string{"change.yaml:3:", "--encryption-provider-config"}},
		"without CoreDNS":               {ofCluster + "dns: {disabled: true}\n", []string{"dns.disabled", "addon"}},
		"the kubelet's domain":          {ofKubelet + "clusterDomain: example.org\n", []string{"change.yaml:3:", "clusterDomain"}},
		"static Pods":                   {ofKubelet + "staticPodPath: /srv\n", []string{"change.yaml:3:", "staticPodPath"}},
		"the kubelet's cgroups":         {ofKubelet + "cgroupDriver: cgroupfs\n", []string{"change.yaml:3:", "cgroupDriver"}},
		"kube-proxy's network":          {ofProxy + "clusterCIDR: 10.10.0.0/16\n", []string{"change.yaml:3:", "clusterCIDR"}},
		"several, in their order":       {ofCluster + "clusterName: other\nnetworking: {podSubnet: 10.10.0.0/16}\n", []string{"change.yaml:3:", "change.yaml:4:"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := loaded(t, test.documents)
			fact.Error(t, err, test.want...)
		})
	}
}

// TestDeletedKubeProxy: nothing reads the ConfigMap that's left of it, whatever it says, so a change neither fails because of it nor
// is about it.
func TestDeletedKubeProxy(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		l := live(t)
		err := l.API.Ensure(t.Context(), fixture.ConfigMap("kube-proxy", "config.conf", ofProxy+"mode: userspace\n"))
		if err == nil && deleted {
			err = l.API.EnsureAbsent(t.Context(), kubeProxy())
		}
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := l.Load(t.Context(), &config.Source{Name: "change.yaml", Data: []byte(ofKubelet + "maxPods: 250\n")})
		if !deleted {
			fact.Error(t, err, "kube-proxy", "mode", "userspace")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, stored := c.Stored["kube-proxy"]; stored || len(c.Fields) != 1 || c.Node.KubeProxy.Mode == "userspace" {
			t.Errorf("%v, %+v", c.Stored, c.Fields)
		}
		_, _, err = l.Load(t.Context(), &config.Source{Name: "change.yaml", Data: []byte(ofProxy + "mode: nftables\n")})
		fact.Error(t, err, config.KubeProxySource, "DaemonSet kube-system/kube-proxy", "`slipway init phase addon kube-proxy`")
		if back, err := l.To(t.Context(), Texts{"kube-proxy": ofProxy + "mode: nftables\n"}); err != nil || len(back.Fields) > 0 {
			t.Errorf("back: %+v, %v", back, err)
		}
	}
}

// TestFixedArgs: each flag in the table is refused when it comes, changes or goes, except that advertise-address may go. A flag that an
// operator has may stay, and it may say the same as its field.
func TestFixedArgs(t *testing.T) {
	for _, row := range fixedArgs() {
		if row.name == reloadArg { // TestReloadStays
			continue
		}
		t.Run(row.path+" "+row.name, func(t *testing.T) {
			if row.reason == "" || row.instead == "" {
				t.Error("has no reason or no alternative")
			}
			node := func(args ...config.Arg) *config.Node {
				n := &config.Node{}
				n.Cluster.Networking = config.Networking{ServiceSubnet: "10.96.0.0/12", PodSubnet: "10.244.0.0/16"}
				n.Cluster.ClusterName, n.Cluster.Etcd.Local = "kubernetes", &config.LocalEtcd{DataDir: "/var/lib/etcd"}
				switch row.path {
				case serverArgs:
					n.Cluster.APIServer.ExtraArgs = args
				case managerArgs:
					n.Cluster.ControllerManager.ExtraArgs = args
				case etcdArgs:
					n.Cluster.Etcd.Local.ExtraArgs = args
				}
				return n
			}
			is := func(value string) config.Arg { return config.Arg{Name: row.name, Value: value} }
			other := config.Arg{Name: "v", Value: "4"}
			changed := []Field{{Source: config.ClusterSource, Path: row.path}}
			wanted := map[string]config.Part{}
			for _, pair := range [][2]*config.Node{{node(), node(is("/x"))}, {node(is("/x")), node(is("/y"))}} {
				fact.Error(t, refused(pair[0], pair[1], changed, wanted), row.path, "--"+row.name)
				if err := refused(pair[0], pair[1], changed, nil); (err == nil) != (row.name == advertiseArg) {
					t.Errorf("for --revert: %v", err)
				}
			}
			switch gone := refused(node(is("/x")), node(), changed, wanted); {
			case row.name != advertiseArg:
				fact.Error(t, gone, row.path, "--"+row.name)
			case gone != nil:
				t.Errorf("it can't go: %v", gone)
			}
			if err := refused(node(is("/x")), node(is("/x"), other), changed, nil); err != nil {
				t.Errorf("one that stays is refused: %v", err)
			}
			if row.field == "" {
				return
			}
			if !slices.ContainsFunc(fixedFields(), func(f fixedField) bool { return f.source == config.ClusterSource && f.path == row.field }) {
				t.Errorf("%s is not fixed", row.field)
			}
			same := is(valueOf(&node().Cluster, row.field))
			if err := errors.Join(refused(node(), node(same), changed, nil), refused(node(same), node(), changed, nil)); same.Value == "" || err != nil {
				t.Errorf("%q, the value of %s, is refused: %v", same.Value, row.field, err)
			}
		})
	}
}

// TestReloadStays: API servers go on loading changed keys, if Slipway looks after them. Slipway itself may set the flag.
func TestReloadStays(t *testing.T) {
	var with config.Node
	with.Cluster.APIServer.ExtraArgs, with.Cluster.APIServer.ExtraVolumes = with.Cluster.WithEncryptionFile()
	lacking := func(n config.Node) *config.Node {
		n.Cluster.APIServer.ExtraArgs = slices.DeleteFunc(slices.Clone(n.Cluster.APIServer.ExtraArgs), func(a config.Arg) bool { return a.Name == reloadArg })
		return &n
	}
	changed := []Field{{Source: config.ClusterSource, Path: serverArgs}}
	fact.Error(t, refused(&with, lacking(with), changed, nil), serverArgs, "--"+reloadArg, "`slipway encryption enable`")
	if err := refused(lacking(with), &with, changed, nil); err != nil {
		t.Errorf("it cannot come back: %v", err)
	}
	theirs := with
	theirs.Cluster.APIServer.ExtraVolumes = nil
	if err := refused(&theirs, lacking(theirs), changed, nil); err != nil {
		t.Errorf("an operator's own file: %v", err)
	}
}
