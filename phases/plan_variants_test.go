// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/accounts"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// variant is a configuration with the host it's used on.
type variant struct {
	documents []byte
	// files exist on the host already, by path.
	files map[string]string
	// done lists phases an earlier run has completed.
	done []step.Phase
	skip []string
	// pulled means that the images are present, active that the kubelet runs.
	pulled, active bool
}

func generate(t *testing.T, seed uint64) variant {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 4))
	some := func() bool { return r.IntN(2) == 0 }
	v := variant{files: map[string]string{}, pulled: some(), active: some()}
	init := &config.InitConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "InitConfiguration"}}
	c := &config.ClusterConfiguration{TypeMeta: metav1.TypeMeta{APIVersion: "kubeadm.k8s.io/v1beta4", Kind: "ClusterConfiguration"}}
	v.generateInit(init, r, some)
	v.generateCluster(c, r, some)
	v.generateEtcd(c, some)
	if r.IntN(3) == 0 && os.Geteuid() == 0 { // only root can change owners
		c.FeatureGates = map[string]bool{"RootlessControlPlane": true}
		v.files[accounts.PasswdFile], v.files[accounts.GroupFile] = fixture.Passwd, fixture.Group
	}
	if some() {
		v.skip = [][]string{{"addon"}, {"addon/coredns"}, {"addon/kube-proxy"}, {"kubelet-finalize"}, {"bootstrap-token", "show-join-command"}, {"preflight"}}[r.IntN(6)]
	}
	v.done = [][]step.Phase{nil, nil, phasetest.Pick(bootstrap.Init(), "certs"), phasetest.Pick(bootstrap.Init(), "certs", "kubeconfig", "etcd", "control-plane")}[r.IntN(4)]
	for _, doc := range []any{init, c} {
		data, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		v.documents = append(append(v.documents, "---\n"...), data...)
	}
	return v
}

func (v *variant) generateInit(c *config.InitConfiguration, r *rand.Rand, some func() bool) {
	c.LocalAPIEndpoint.AdvertiseAddress = "192.0.2.11"
	c.NodeRegistration.Name, c.NodeRegistration.CRISocket = "cp-1", "unix:///run/containerd/containerd.sock"
	c.NodeRegistration.IgnorePreflightErrors = []string{"all"}
	if some() {
		c.LocalAPIEndpoint.BindPort = 7443
	}
	if some() {
		c.NodeRegistration.KubeletExtraArgs = []config.Arg{{Name: "v", Value: fmt.Sprint(r.IntN(5))}, {Name: "node-labels", Value: "a=b"}}
	}
	if some() {
		c.CertificateKey = "a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4a1b2c3d4"
	}
	for i := range r.IntN(3) {
		token := config.BootstrapToken{Token: fmt.Sprintf("abcde%d.0123456789abcdef", i)}
		if some() {
			token.TTL = &metav1.Duration{Duration: time.Hour}
		}
		c.BootstrapTokens = append(c.BootstrapTokens, token)
	}
	if some() {
		c.Patches = &config.Patches{Directory: "/etc/patches"}
		v.files["/etc/patches/kube-apiserver+merge.yaml"] = "metadata: {labels: {patched: yes-it-is}}\n"
		v.files["/etc/patches/kubeletconfiguration0+json.yaml"] = "- {op: add, path: /maxPods, value: 17}\n"
		v.files["/etc/patches/etcd.yaml"] = "metadata: {annotations: {patched: too}}\n"
	}
}

func (v *variant) generateCluster(c *config.ClusterConfiguration, r *rand.Rand, some func() bool) {
	c.KubernetesVersion = "v1.37.2"
	c.EncryptionAlgorithm = []config.EncryptionAlgorithm{config.ECDSAP384, config.ECDSAP256}[min(1, r.IntN(8))]
	c.APIServer.CertSANs = []string{"127.0.0.1"} // the address of the test's API
	if some() {
		c.APIServer.CertSANs = append(c.APIServer.CertSANs, "api.example.org", "2001:db8::1")
	}
	c.ControlPlaneEndpoint = []string{"", "api.example.org", "api.example.org:8443"}[r.IntN(3)]
	c.Networking.PodSubnet = []string{"", "10.244.0.0/16"}[r.IntN(2)]
	c.Networking.ServiceSubnet = []string{"", "10.99.0.0/16", "10.99.0.0/16,fd00:99::/112"}[r.IntN(3)]
	c.DNS.Disabled, c.Proxy.Disabled = r.IntN(4) == 0, r.IntN(4) == 0
	for _, component := range []*config.ControlPlaneComponent{&c.APIServer.ControlPlaneComponent, &c.ControllerManager, &c.Scheduler} {
		if some() {
			component.ExtraArgs = []config.Arg{{Name: "v", Value: fmt.Sprint(r.IntN(5))}}
			component.ExtraVolumes = []config.HostPathMount{{Name: "more", HostPath: "/opt/more", MountPath: "/more", ReadOnly: true}}
		}
	}
	if some() {
		c.ClusterName, c.Networking.DNSDomain = "one", "one.example"
	}
	if r.IntN(3) == 0 {
		c.CertificatesDir = "/etc/kubernetes/own"
	}
	if some() {
		c.CACertificateValidityPeriod = &metav1.Duration{Duration: 1000 * time.Hour}
		c.CertificateValidityPeriod = &metav1.Duration{Duration: 100 * time.Hour}
	}
}

func (v *variant) generateEtcd(c *config.ClusterConfiguration, some func() bool) {
	switch {
	case some():
	case some():
		c.Etcd.Local = &config.LocalEtcd{DataDir: "/var/lib/other-etcd", ServerCertSANs: []string{"etcd.example.org"},
			ExtraArgs: []config.Arg{{Name: "snapshot-count", Value: "7"}}}
	default:
		c.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://192.0.2.50:2379"},
			CAFile: "/etc/etcd/ca.crt", CertFile: "/etc/etcd/client.crt", KeyFile: "/etc/etcd/client.key"}
		for _, file := range []string{"ca.crt", "client.crt", "client.key"} {
			v.files["/etc/etcd/"+file] = file
		}
	}
}

// node loads the variant as `init --upload-certs --config` does.
func (v variant) node(t *testing.T) *config.Node {
	t.Helper()
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: "init.yaml", Data: v.documents},
		config.InitFlags{Given: []string{"upload-certs"}, UploadCerts: true}, config.Options{
			Facts:             config.HostFacts{Hostname: "cp-1"},
			NewToken:          func() (string, string) { return "fedcba", "0123456789abcdef" },
			NewCertificateKey: func() string { return "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff" },
		})
	if err != nil {
		t.Fatalf("%v\n%s", err, v.documents)
	}
	return n
}
