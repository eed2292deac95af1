// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/test/fact"
)

const initAndCluster = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
%s
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
%s
`

// file makes a source of an InitConfiguration and a ClusterConfiguration with the given fields.
func file(initFields, clusterFields string) *Source {
	return &Source{Name: "f.yaml", Data: fmt.Appendf(nil, initAndCluster, initFields, clusterFields)}
}

func mustLoad(t *testing.T, src *Source, flags InitFlags, opts Options) *Node {
	t.Helper()
	n, warnings, err := LoadInit(t.Context(), src, flags, opts)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("error %v, warnings %q", err, warnings)
	}
	return n
}

func TestLoadInitDefaults(t *testing.T) {
	opts := testOptions()
	opts.Resolve = func(context.Context, string) (string, error) {
		t.Error("the default version needs no network")
		return "", nil
	}
	n := mustLoad(t, nil, InitFlags{}, opts)
	want := Node{
		Machine: Machine{
			CRISocket: "unix:///var/run/containerd/containerd.sock",
			Timeouts: Limits{
				ControlPlaneComponentHealthCheck: 4 * time.Minute, KubeletHealthCheck: 4 * time.Minute,
				KubernetesAPICall: time.Minute, EtcdAPICall: 2 * time.Minute, TLSBootstrap: 5 * time.Minute,
				Discovery: 5 * time.Minute, UpgradeManifests: 5 * time.Minute,
			},
			Paths: Paths{
				Kubernetes: "/etc/kubernetes", Manifests: "/etc/kubernetes/manifests", PKI: "/etc/kubernetes/pki",
				Kubeconfigs: "/etc/kubernetes", Kubelet: "/var/lib/kubelet", AdminKubeconfig: "/etc/kubernetes/admin.conf",
			},
		},
		ControlPlane:     true,
		Name:             "vm",
		Hostname:         "vm",
		Taints:           []corev1.Taint{{Key: "node-role.kubernetes.io/control-plane", Effect: "NoSchedule"}},
		ImagePullPolicy:  corev1.PullIfNotPresent,
		AdvertiseAddress: netip.MustParseAddr("192.168.99.11"),
		BindPort:         6443,
	}
	want.Cluster, want.Kubelet, want.KubeProxy, want.BootstrapTokens = n.Cluster, n.Kubelet, n.KubeProxy, n.BootstrapTokens
	if diff := cmp.Diff(want, *n, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.AllowUnexported(Secret{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	token := n.BootstrapTokens[0]
	if token.ID != "abcdef" || token.Secret.Reveal() != "0123456789abcdef" || !token.Generated || token.TTL != 24*time.Hour {
		t.Errorf("token %s, generated %t, TTL %s", token.ID, token.Generated, token.TTL)
	}
	if n.Cluster.KubernetesVersion != DefaultKubernetesVersion {
		t.Errorf("version %s", n.Cluster.KubernetesVersion)
	}
}

// allFlags sets every flag of init that changes the desired state.
func allFlags() InitFlags {
	return InitFlags{
		Given: []string{
			"apiserver-advertise-address", "apiserver-bind-port", "apiserver-cert-extra-sans", "cert-dir", "certificate-key",
			"control-plane-endpoint", "cri-socket", "dry-run", "feature-gates", "ignore-preflight-errors", "image-repository",
			"kubeconfig", "kubeconfig-dir", "kubernetes-version", "node-name", "patches", "pod-network-cidr", "service-cidr",
			"service-dns-domain", "skip-certificate-key-print", "skip-phases", "skip-token-print", "token", "token-ttl", "upload-certs",
		},
		APIServerAdvertiseAddress: "10.0.0.9", APIServerBindPort: 7443, APIServerCertExtraSANs: []string{"api.example"},
		CertDir: "/pki", CertificateKey: strings.Repeat("ab", 32), ControlPlaneEndpoint: "api.example", CRISocket: "unix:///run/crio/crio.sock",
		DryRun: true, FeatureGates: "RootlessControlPlane=true", IgnorePreflightErrors: []string{"Swap", "NumCPU", "swap"},
		ImageRepository: "registry.example/k8s", Kubeconfig: "/admin.conf", KubeconfigDir: "/kube", KubernetesVersion: "1.35.2",
		NodeName: "CP-9", Patches: "patches", PodNetworkCIDR: "172.16.0.0/16", ServiceCIDR: "172.17.0.0/16", ServiceDNSDomain: "k8s.example",
		SkipCertificateKeyPrint: true, SkipPhases: []string{"addon"}, SkipTokenPrint: true, Token: "bbbbbb.0123456789abcdef",
		TokenTTL: 0, UploadCerts: true,
	}
}

func TestLoadInitFlags(t *testing.T) {
	n := mustLoad(t, nil, allFlags(), testOptions())
	got := fmt.Sprintln(n.AdvertiseAddress, n.BindPort, n.Cluster.APIServer.CertSANs, n.Paths, n.CertificateKey.Reveal(),
		n.Cluster.ControlPlaneEndpoint, n.CRISocket, n.DryRun, n.Cluster.FeatureGates, n.IgnorePreflightErrors, n.Cluster.ImageRepository,
		n.Cluster.KubernetesVersion, n.Name, n.PatchesDir, n.Cluster.Networking, n.SkipCertificateKeyPrint, n.SkipPhases,
		n.SkipTokenPrint, n.BootstrapTokens[0].ID, n.BootstrapTokens[0].TTL, n.BootstrapTokens[0].Generated, n.UploadCerts, n.Kubelet.ClusterDNS)
	want := fmt.Sprintln("10.0.0.9 7443 [api.example] {/etc/kubernetes /etc/kubernetes/manifests /pki /kube /var/lib/kubelet /admin.conf}", strings.Repeat("ab", 32),
		"api.example:7443 unix:///run/crio/crio.sock true map[RootlessControlPlane:true] [swap numcpu] registry.example/k8s",
		"v1.35.2 cp-9 patches {172.17.0.0/16 172.16.0.0/16 k8s.example} true [addon]",
		"true bbbbbb 0s false true [172.17.0.10]")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestFlagsThatAreNotGivenDoNotCount(t *testing.T) {
	flags := allFlags()
	flags.Given = nil
	want, got := mustLoad(t, nil, InitFlags{}, testOptions()), mustLoad(t, nil, flags, testOptions())
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.AllowUnexported(Secret{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestEmptyDirectoryIsTheDefault: an empty flag doesn't mean the working directory.
func TestEmptyDirectoryIsTheDefault(t *testing.T) {
	flags := InitFlags{Given: []string{"cert-dir", "kubeconfig-dir"}}
	if got, want := mustLoad(t, nil, flags, testOptions()).Paths, mustLoad(t, nil, InitFlags{}, testOptions()).Paths; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestMixingFlagsAndFile checks kubeadm's rule for each flag.
func TestMixingFlagsAndFile(t *testing.T) {
	allowed := []string{
		"dry-run", "ignore-preflight-errors", "kubeconfig", "kubeconfig-dir", "node-name",
		"skip-certificate-key-print", "skip-phases", "skip-token-print", "upload-certs",
	}
	for _, flag := range allFlags().Given {
		t.Run(flag, func(t *testing.T) {
			flags := allFlags()
			flags.Given = []string{flag}
			_, _, err := LoadInit(t.Context(), file("", ""), flags, testOptions())
			if slices.Contains(allowed, flag) {
				fact.Error(t, err)
			} else {
				fact.List(t, strings.Split(fmt.Sprint(err), "\n"), "--"+flag+": | --config")
			}
		})
	}
}

func TestFlagsOverFile(t *testing.T) {
	flags := InitFlags{
		Given:    []string{"node-name", "ignore-preflight-errors", "skip-phases", "upload-certs"},
		NodeName: "flag", IgnorePreflightErrors: []string{"Swap"}, SkipPhases: []string{"addon"}, UploadCerts: true,
	}
	n := mustLoad(t, file("nodeRegistration: {name: file, ignorePreflightErrors: [NumCPU]}\nskipPhases: [certs]\ndryRun: true", ""), flags, testOptions())
	got := fmt.Sprintln(n.Name, n.IgnorePreflightErrors, n.SkipPhases, n.DryRun, len(n.CertificateKey.Reveal()))
	if want := "flag [numcpu swap] [addon] true 64\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestBadFlags(t *testing.T) {
	for _, tt := range []struct {
		flag string
		set  func(*InitFlags)
		want string
	}{
		{"apiserver-advertise-address", func(f *InitFlags) { f.APIServerAdvertiseAddress = "host" }, `"host" | IP address`},
		{"apiserver-bind-port", func(f *InitFlags) { f.APIServerBindPort = 70000 }, "70000 | 1 to 65535"},
		{"apiserver-cert-extra-sans", func(f *InitFlags) { f.APIServerCertExtraSANs = []string{"ok.example", "*"} }, `"*"`},
		{"cert-dir", func(f *InitFlags) { f.CertDir = "pki" }, `"pki" | absolute`},
		{"certificate-key", func(f *InitFlags) { f.CertificateKey = "SECRET" }, "certificate key"},
		{"control-plane-endpoint", func(f *InitFlags) { f.ControlPlaneEndpoint = "a_b:1" }, `"a_b:1" | host "a_b"`},
		{"cri-socket", func(f *InitFlags) { f.CRISocket = "containerd" }, `"containerd" | socket`},
		{"feature-gates", func(f *InitFlags) { f.FeatureGates = "RootlessControlPlane" }, `"RootlessControlPlane" | NAME=true or NAME=false`},
		{"feature-gates", func(f *InitFlags) { f.FeatureGates = "Rootles=true" }, `"Rootles"`},
		{"ignore-preflight-errors", func(f *InitFlags) { f.IgnorePreflightErrors = []string{"all", "Swap"} }, "other checks"},
		{"image-repository", func(f *InitFlags) { f.ImageRepository = "a b" }, `"a b" | registry`},
		{"kubernetes-version", func(f *InitFlags) { f.KubernetesVersion = "v1.34.0" }, `"v1.34.0" | Kubernetes 1.35 to 1.37`},
		{"node-name", func(f *InitFlags) { f.NodeName = "a_b" }, `"a_b"`},
		{"patches", func(f *InitFlags) { f.Patches = "a\nb" }, "control character"},
		{"pod-network-cidr", func(f *InitFlags) { f.PodNetworkCIDR = "10.96.0.0/16" }, "10.96.0.0/16 | networking.serviceSubnet"},
		{"service-cidr", func(f *InitFlags) { f.ServiceCIDR = "10.0.0.0/8" }, "10.0.0.0/8 | large"},
		{"service-dns-domain", func(f *InitFlags) { f.ServiceDNSDomain = "A" }, `"A" | lower case`},
		{"skip-phases", func(f *InitFlags) { f.SkipPhases = []string{""} }, `"" | phase`},
		{"token", func(f *InitFlags) { f.Token = "SECRET" }, "bootstrap token"},
		{"token-ttl", func(f *InitFlags) { f.TokenTTL = -time.Hour }, "-1h0m0s | negative"},
	} {
		t.Run(tt.flag, func(t *testing.T) {
			flags := InitFlags{Given: []string{tt.flag}}
			tt.set(&flags)
			_, _, err := LoadInit(t.Context(), nil, flags, testOptions())
			var faults Faults
			if !errors.As(err, &faults) || len(faults) != 1 {
				t.Fatalf("want one fault, got %v", err)
			}
			if got := err.Error(); !strings.HasPrefix(got, "--"+tt.flag+": ") || strings.Contains(got, "SECRET") {
				t.Errorf("got %q, want --%s: %s", got, tt.flag, tt.want)
			}
			fact.Error(t, err, fact.Of(tt.want)...)
		})
	}
}

// TestAllFaultsAtOnce: all faults are reported together, flags first, then the file by line.
func TestAllFaultsAtOnce(t *testing.T) {
	flags := InitFlags{Given: []string{"node-name", "token"}, NodeName: "a_b"}
	_, _, err := LoadInit(t.Context(), file("bogus: 1", "networking: {dnsDomain: A}\nkubernetesVersion: v1"), flags, testOptions())
	fact.List(t, strings.Split(fmt.Sprint(err), "\n"),
		"--token: | --config",
		`--node-name: "a_b"`,
		"f.yaml:3: bogus: | unknown",
		`f.yaml:7: networking.dnsDomain: "A" | lower case`,
		`f.yaml:8: kubernetesVersion: "v1" | v1.37.2 | stable-1`)
}

func TestHostFacts(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.9"), netip.MustParseAddr("fd00:99::9")
	ipv6Only := "networking: {serviceSubnet: 'fd00:10:96::/112'}"
	for _, tt := range []struct {
		name    string
		facts   HostFacts
		cluster string
		flags   InitFlags
		want    string // name, socket, address; or the facts of the error
	}{
		{"upper case name", HostFacts{Hostname: " Host-1.Example\n", IPv4: v4}, "", InitFlags{}, "host-1.example unix:///var/run/containerd/containerd.sock 10.0.0.9"},
		{"one runtime", HostFacts{Hostname: "h", IPv4: v4, Sockets: []string{"/var/run/crio/crio.sock"}}, "", InitFlags{}, "h unix:///var/run/crio/crio.sock 10.0.0.9"},
		{"two runtimes", HostFacts{Hostname: "h", IPv4: v4, Sockets: []string{"/a", "/b"}}, "", InitFlags{},
			"f.yaml:1: nodeRegistration.criSocket: | /a, /b"},
		{"IPv6 only", HostFacts{Hostname: "h", IPv6: v6}, ipv6Only, InitFlags{}, "h unix:///var/run/containerd/containerd.sock fd00:99::9"},
		{"IPv4 first", HostFacts{Hostname: "h", IPv4: v4, IPv6: v6}, "", InitFlags{}, "h unix:///var/run/containerd/containerd.sock 10.0.0.9"},
		{"IPv6 cluster on a host of both", HostFacts{Hostname: "h", IPv4: v4, IPv6: v6}, ipv6Only, InitFlags{}, "h unix:///var/run/containerd/containerd.sock fd00:99::9"},
		{"bad host name", HostFacts{Hostname: "my_host", IPv4: v4}, "", InitFlags{},
			`f.yaml:1: nodeRegistration.name: "my_host" | a-z | 0-9 | hostname`},
		{"no address", HostFacts{Hostname: "h"}, "", InitFlags{},
			"f.yaml:1: localAPIEndpoint.advertiseAddress: | default route | --apiserver-advertise-address"},
		{"no address in a dry run", HostFacts{Hostname: "h"}, "", InitFlags{Given: []string{"dry-run"}, DryRun: true}, "h unix:///var/run/containerd/containerd.sock 192.0.2.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := testOptions()
			opts.Facts = tt.facts
			n, _, err := LoadInit(t.Context(), file("", tt.cluster), tt.flags, opts)
			if err != nil {
				fact.List(t, strings.Split(err.Error(), "\n"), tt.want)
			} else if got := fmt.Sprint(n.Name, " ", n.CRISocket, " ", n.AdvertiseAddress); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestComponentDefaults(t *testing.T) {
	opts := testOptions()
	opts.Facts = HostFacts{Hostname: "h", IPv6: netip.MustParseAddr("fd00:99::9")}
	n := mustLoad(t, file("", "networking: {serviceSubnet: 'fd00:10:96::/112', podSubnet: 'fd00:10:244::/56'}"), InitFlags{}, opts)
	got := fmt.Sprint(n.Kubelet.ClusterDNS, " ", n.Kubelet.HealthzBindAddress, " ", n.KubeProxy.BindAddress, " ", n.KubeProxy.ClusterCIDR)
	if want := "[fd00:10:96::a] 127.0.0.1 :: fd00:10:244::/56"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestComponentsCarriedWhole: a component's document keeps the user's values; defaults only fill gaps.
func TestComponentsCarriedWhole(t *testing.T) {
	src := file("", "")
	src.Data = append(src.Data, `---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 7
cgroupDriver: cgroupfs
authentication: {webhook: {cacheTTL: 3m}}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
nodePortAddresses: [primary]
`...)
	n := mustLoad(t, src, InitFlags{}, testOptions())
	got := fmt.Sprint(n.Kubelet.MaxPods, " ", n.Kubelet.CgroupDriver, " ", n.Kubelet.Authentication.Webhook.CacheTTL.Duration, " ",
		*n.Kubelet.Authentication.Webhook.Enabled, " ", n.KubeProxy.Mode, " ", n.KubeProxy.NodePortAddresses, " ", n.KubeProxy.BindAddress)
	if want := "7 cgroupfs 3m0s true nftables [primary] 0.0.0.0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRegistrationChoices(t *testing.T) {
	n := mustLoad(t, file("nodeRegistration: {taints: [], imagePullSerial: true}\ntimeouts: {controlPlaneComponentHealthCheck: 0s, discovery: 7m}", ""), InitFlags{}, testOptions())
	if n.Taints == nil || len(n.Taints) != 0 || !n.ImagePullSerial {
		t.Errorf("taints %v, serial %t", n.Taints, n.ImagePullSerial)
	}
	if n.Timeouts.ControlPlaneComponentHealthCheck != 4*time.Minute || n.Timeouts.Discovery != 7*time.Minute {
		t.Errorf("timeouts %+v", n.Timeouts)
	}
}

func TestUnusedDocuments(t *testing.T) {
	src := file("", "")
	src.Data = append(src.Data, "---\napiVersion: kubeadm.k8s.io/v1beta4\nkind: ResetConfiguration\n"...)
	_, warnings, err := LoadInit(t.Context(), src, InitFlags{}, testOptions())
	fact.Error(t, err)
	fact.List(t, warnings, "f.yaml:9: ResetConfiguration | ignored")
}

func TestTooLarge(t *testing.T) {
	src := Source{Name: "f.yaml", Data: []byte("#" + strings.Repeat("x", MaxSize))}
	_, err := Validate(t.Context(), src, testOptions())
	fact.Error(t, err, "f.yaml:", "1 MiB")
}

func TestImages(t *testing.T) {
	for _, tt := range []struct{ name, cluster, component, want string }{
		{"plain", "", "coredns", "registry.k8s.io/coredns/coredns:v1.14.6"},
		{"custom registry", "imageRepository: r.example/k8s", "coredns", "r.example/k8s/coredns:v1.14.6"},
		{"custom registry, etcd", "imageRepository: r.example/k8s", "etcd", "r.example/k8s/etcd:3.7.0-0"},
		{"1.36, etcd", "kubernetesVersion: v1.36.4", "etcd", "registry.k8s.io/etcd:3.7.0-0"},
		{"1.35, etcd", "kubernetesVersion: v1.35.8", "etcd", "registry.k8s.io/etcd:3.6.8-0"},
		{"1.35, coredns", "kubernetesVersion: v1.35.8", "coredns", "registry.k8s.io/coredns/coredns:v1.14.2"},
		{"dns registry and tag", "dns: {imageRepository: r.example/dns, imageTag: v1}", "coredns", "r.example/dns/coredns:v1"},
		{"dns tag", "dns: {imageTag: v1}", "coredns", "registry.k8s.io/coredns/coredns:v1"},
		{"etcd registry and tag", "etcd: {local: {imageRepository: r.example, imageTag: v9}}", "etcd", "r.example/etcd:v9"},
		{"build metadata", "kubernetesVersion: v1.36.0+abc", "kube-proxy", "registry.k8s.io/kube-proxy:v1.36.0_abc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := mustLoad(t, file("", tt.cluster), InitFlags{}, testOptions()).Image(tt.component); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
	n := mustLoad(t, file("", "dns: {disabled: true}\nproxy: {disabled: true}"), InitFlags{}, testOptions())
	if got := len(n.Images()); got != 5 {
		t.Errorf("%d images without addons: %q", got, n.Images())
	}
}

func TestOtherLoaders(t *testing.T) {
	src := &Source{Name: "all.yaml", Data: readFile(t, configs, "valid-others.yaml")}
	join, warnings, err := LoadJoin(src, JoinFlags{}, testOptions())
	if err != nil || len(warnings) != 2 || join.NodeRegistration.Name != "vm" || join.Discovery.TLSBootstrapToken != "abcdef.0123456789abcdef" {
		t.Errorf("join %q, %v", warnings, err)
	}
	reset, warnings, err := LoadReset(src, ResetFlags{}, testOptions())
	if err != nil || len(warnings) != 2 || !reset.Reset.Force || reset.Paths.PKI != DefaultCertificatesDir {
		t.Errorf("reset %+v, %q, %v", reset, warnings, err)
	}
	_, _, err = LoadJoin(nil, JoinFlags{}, testOptions())
	fact.Error(t, err, "discovery:", "bootstrapToken", "HOST:PORT", "--token", "--discovery-file")
}

// TestFileForAnotherCommand: a file without a document for the command is a mistake, not a request for the defaults. So is
// `reset` with other commands' documents.
func TestFileForAnotherCommand(t *testing.T) {
	const head = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: "
	loaders := map[string]func(*Source) error{
		"InitConfiguration or ClusterConfiguration": func(src *Source) error {
			_, _, err := LoadInit(t.Context(), src, InitFlags{}, testOptions())
			return err
		},
		"JoinConfiguration": func(src *Source) error {
			_, _, err := LoadJoin(src, JoinFlags{}, testOptions())
			return err
		},
		"ResetConfiguration": func(src *Source) error {
			_, _, err := LoadReset(src, ResetFlags{}, testOptions())
			return err
		},
	}
	for wanted, load := range loaders {
		for _, test := range []struct{ name, text, has string }{
			{"empty", "", "no documents"},
			{"comment", "# later\n---\n", "no documents"},
			{"component", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n", "only KubeletConfiguration"},
		} {
			t.Run(wanted+"/"+test.name, func(t *testing.T) {
				err := load(&Source{Name: "f.yaml", Data: []byte(test.text)})
				fact.Error(t, err, "f.yaml:", wanted, "kubeadm.k8s.io/v1beta4", test.has)
			})
		}
	}
	_, _, err := LoadReset(file("", ""), ResetFlags{}, testOptions())
	if want := "f.yaml: contains no ResetConfiguration (kubeadm.k8s.io/v1beta4), only ClusterConfiguration, InitConfiguration"; fmt.Sprint(err) != want {
		t.Errorf("got %v, want %s", err, want)
	}
	broken := &Source{Name: "f.yaml", Data: []byte(head + "ResetConfig\n")}
	if _, _, err := LoadReset(broken, ResetFlags{}, testOptions()); err == nil || strings.Contains(err.Error(), "contains no") {
		t.Errorf("of a misspelt kind: %v", err)
	}
}

const (
	someToken  = "abcdef.0123456789abcdef"
	otherToken = "fedcba.fedcba9876543210"
	somePin    = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestLoadJoinFlags(t *testing.T) {
	tests := []struct {
		name  string
		flags JoinFlags
		want  Discovery
	}{
		{"token for both", JoinFlags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, CACertHashes: []string{somePin}},
			Discovery{BootstrapToken: &BootstrapTokenDiscovery{Token: someToken, APIServerEndpoint: "a:6443", CACertHashes: []string{somePin}}, TLSBootstrapToken: someToken}},
		{"own tokens", JoinFlags{Given: []string{"token", "discovery-token", "discovery-token-unsafe-skip-ca-verification"}, Endpoint: "a:6443", Token: someToken, DiscoveryToken: otherToken, SkipCAVerification: true},
			Discovery{BootstrapToken: &BootstrapTokenDiscovery{Token: otherToken, APIServerEndpoint: "a:6443", UnsafeSkipCAVerification: true}, TLSBootstrapToken: someToken}},
		{"file", JoinFlags{Given: []string{"discovery-file"}, DiscoveryFile: "/x"}, Discovery{File: &FileDiscovery{"/x"}}},
		{"file and token", JoinFlags{Given: []string{"discovery-file", "token"}, DiscoveryFile: "/x", Token: someToken},
			Discovery{File: &FileDiscovery{"/x"}, TLSBootstrapToken: someToken}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, _, err := LoadJoin(nil, tt.flags, testOptions())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, c.Discovery); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLoadJoinFaults(t *testing.T) {
	file := &Source{Name: "j.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\n")}
	tests := []struct {
		name  string
		src   *Source
		flags JoinFlags
		want  string
	}{
		{"nothing", nil, JoinFlags{}, "discovery: | bootstrapToken | file"},
		{"no address", nil, JoinFlags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Token: someToken, CACertHashes: []string{somePin}},
			"discovery.bootstrapToken.apiServerEndpoint: | missing"},
		{"no pin", nil, JoinFlags{Given: []string{"token"}, Endpoint: "a:6443", Token: someToken},
			"discovery.bootstrapToken.caCertHashes: | empty"},
		{"bad pin", nil, JoinFlags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, CACertHashes: []string{"sha256:00"}},
			"--discovery-token-ca-cert-hash: | sha256: | 64"},
		{"bad token", nil, JoinFlags{Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: "hunter2", CACertHashes: []string{somePin}}, "--token: "},
		{"two ways", nil, JoinFlags{Given: []string{"token", "discovery-file", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, DiscoveryFile: "/x", CACertHashes: []string{somePin}},
			"discovery: bootstrapToken and file"},
		{"http", nil, JoinFlags{Given: []string{"discovery-file"}, DiscoveryFile: "http://x/y"}, "--discovery-file: | https URL"},
		{"flag and file", file, JoinFlags{Given: []string{"token", "config"}, Token: someToken}, "--token: | --config"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := LoadJoin(tt.src, tt.flags, testOptions())
			text := fmt.Sprint(err)
			if place, _, _ := strings.Cut(tt.want, " "); !strings.HasPrefix(text, place) {
				t.Errorf("got %q, want %q", text, tt.want)
			}
			fact.In(t, text, fact.Of(tt.want)...)
			if strings.Contains(text, "hunter2") {
				t.Errorf("the token is in %q", text)
			}
		})
	}
}

// TestLoadJoinFileAndAddress: with a file, the address isn't used, as in kubeadm. The user gets a warning.
func TestLoadJoinFileAndAddress(t *testing.T) {
	file := &Source{Name: "j.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\n")}
	_, warnings, err := LoadJoin(file, JoinFlags{Given: []string{"config"}, Endpoint: "a:1"}, testOptions())
	fact.Error(t, err)
	fact.List(t, warnings, "a:1 | ignored | --config")
}

// TestLoadJoinFlagsOfControlPlane: users who give a certificate key want a control plane, and are warned that they get a worker.
func TestLoadJoinFlagsOfControlPlane(t *testing.T) {
	flags := JoinFlags{Given: []string{"token", "discovery-token-ca-cert-hash", "certificate-key"}, Endpoint: "a:1",
		Token: someToken, CACertHashes: []string{somePin}, CertificateKey: strings.Repeat("0", 64)}
	_, warnings, err := LoadJoin(nil, flags, testOptions())
	fact.Error(t, err)
	fact.List(t, warnings, "--certificate-key: | ignored | --control-plane | worker")
	flags.Given, flags.ControlPlane = append(flags.Given, "control-plane"), true
	if _, warnings, err := LoadJoin(nil, flags, testOptions()); err != nil || len(warnings) > 0 {
		t.Errorf("%q, %v", warnings, err)
	}
}

func TestLoadJoinFileWithFlags(t *testing.T) {
	file := &Source{Name: "j.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: JoinConfiguration\ndiscovery: {file: {kubeConfigPath: /x}}\nnodeRegistration: {name: a, ignorePreflightErrors: [Swap]}\n")}
	c, _, err := LoadJoin(file, JoinFlags{Given: []string{"node-name", "ignore-preflight-errors"}, NodeName: "b", IgnorePreflightErrors: []string{"Mem"}}, testOptions())
	if err != nil || c.NodeRegistration.Name != "b" || len(c.NodeRegistration.IgnorePreflightErrors) != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestLoadTokens(t *testing.T) {
	secrets := cmp.Comparer(func(a, b Secret) bool { return a == b })
	group := defaultTokenGroups()
	for _, c := range []struct {
		name  string
		file  string
		flags TokenFlags
		want  []Token
	}{
		{"made up", "", TokenFlags{Given: []string{"ttl"}, TokenTTL: time.Hour},
			[]Token{{ID: "abcdef", TTL: time.Hour, Usages: DefaultTokenUsages(), Groups: group}}},
		{"for ever", "", TokenFlags{Given: []string{"ttl", "description"}, Token: "abcdef.0123456789abcdef", Description: "x"},
			[]Token{{ID: "abcdef", Usages: DefaultTokenUsages(), Groups: group, Description: "x"}}},
		{"signing only", "", TokenFlags{Given: []string{"usages", "ttl"}, Usages: []string{"signing"}},
			[]Token{{ID: "abcdef", Usages: []string{"signing"}}}},
		{"file", initHead + "bootstrapTokens:\n- {token: abcdef.0123456789abcdef, ttl: 2h, usages: [signing]}\n", TokenFlags{},
			[]Token{{ID: "abcdef", TTL: 2 * time.Hour, Usages: []string{"signing"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range c.want {
				c.want[i].Secret = NewSecret("0123456789abcdef")
			}
			got, warnings, err := LoadTokens(asSource(c.file), c.flags, testOptions())
			if err != nil || len(warnings) > 0 {
				t.Fatal(warnings, err)
			}
			if diff := cmp.Diff(c.want, got, secrets); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

const initHead = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n"

func asSource(text string) *Source {
	if text == "" {
		return nil
	}
	return &Source{Name: "f.yaml", Data: []byte(text)}
}

func TestLoadTokensFaults(t *testing.T) {
	for _, c := range []struct {
		file  string
		flags TokenFlags
		want  string
	}{
		{"", TokenFlags{Token: "SECRET"}, "bootstrap token: 6 | 16"},
		{"", TokenFlags{Given: []string{"ttl"}, TokenTTL: -1}, "--ttl: | -1ns | negative"},
		{"", TokenFlags{Given: []string{"usages"}, Usages: []string{"sign"}}, `--usages: | "sign"`},
		{"", TokenFlags{Given: []string{"groups"}, Groups: []string{"system:masters"}}, "--groups: \"system:masters\" | system:bootstrappers:"},
		{"", TokenFlags{Given: []string{"groups", "usages"}, Usages: []string{"signing"}, Groups: defaultTokenGroups()}, "--groups: | usage authentication"},
		{"", TokenFlags{Given: []string{"description"}, Description: "a\nb"}, "--description: | control character"},
		{initHead, TokenFlags{}, "f.yaml: | InitConfiguration | bootstrapTokens"},
		{initHead + "bootstrapTokens: [{token: SECRET}]", TokenFlags{}, "f.yaml:3: bootstrapTokens[0].token: | bootstrap token"},
		{initHead + "bootstrapTokens: [{}]", TokenFlags{Given: []string{"ttl"}}, "--ttl: | --config"},
		{initHead + "bootstrapTokens: [{}]", TokenFlags{Token: "SECRET"}, "token | --config"},
	} {
		_, _, err := LoadTokens(asSource(c.file), c.flags, testOptions())
		if strings.Contains(fmt.Sprint(err), "SECRET") {
			t.Errorf("%+v: %v, want %s", c.flags, err, c.want)
		}
		fact.Error(t, err, fact.Of(c.want)...)
	}
}

func TestTokenID(t *testing.T) {
	for _, text := range []string{"abcdef", "abcdef.0123456789abcdef"} {
		if id, err := TokenID(text); id != "abcdef" || err != nil {
			t.Error(text, id, err)
		}
	}
	for _, text := range []string{"", "ABCDEF", "abcdef.", "abcdef.SECRET", "abcdef0", "../../x"} {
		if _, err := TokenID(text); err == nil || text != "" && strings.Contains(err.Error(), text) {
			t.Error(text, err)
		}
	}
}

func TestNewToken(t *testing.T) {
	id, secret := NewToken()
	if !IsToken(id + "." + secret) {
		t.Errorf("a new token of %d and %d characters has the wrong form", len(id), len(secret))
	}
	if _, other := NewToken(); other == secret {
		t.Error("two tokens have the same secret")
	}
	for _, text := range []string{"", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef\n"} {
		if IsToken(text) {
			t.Errorf("%q is taken for a token", text)
		}
	}
}

// TestLimitsKnowTheirFields: a wait that took too long names the field to change.
func TestLimitsKnowTheirFields(t *testing.T) {
	l, other := DefaultLimits(), time.Minute
	for want, limit := range map[string]*time.Duration{
		"controlPlaneComponentHealthCheck": &l.ControlPlaneComponentHealthCheck, "kubeletHealthCheck": &l.KubeletHealthCheck, "": &other,
	} {
		if got := l.Field(limit); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestLoadInitRestored: a restored cluster keeps its configuration, except for documents and flags that the user gives.
func TestLoadInitRestored(t *testing.T) {
	const stored = `apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.1
controlPlaneEndpoint: api.example.org
networking: {serviceSubnet: 10.100.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
maxPods: 42
`
	opts := testOptions()
	opts.Restored = &Source{Name: "s.db", Data: []byte(stored)}
	for name, tt := range map[string]struct {
		src     *Source
		flags   InitFlags
		service string
		pods    int32
	}{
		"no file":         {nil, InitFlags{NodeName: "new", Given: Given{"node-name"}}, "10.100.0.0/16", 42},
		"a host's own":    {&Source{Name: "f.yaml", Data: []byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n")}, InitFlags{}, "10.100.0.0/16", 42},
		"another cluster": {file("", "networking: {serviceSubnet: 10.50.0.0/16}"), InitFlags{}, "10.50.0.0/16", 42},
	} {
		t.Run(name, func(t *testing.T) {
			n, _, err := LoadInit(t.Context(), tt.src, tt.flags, opts)
			if err != nil {
				t.Fatal(err)
			}
			if n.Cluster.Networking.ServiceSubnet != tt.service || n.Kubelet.MaxPods != tt.pods {
				t.Errorf("Services %s, %d Pods", n.Cluster.Networking.ServiceSubnet, n.Kubelet.MaxPods)
			}
			if tt.flags.NodeName != "" && n.Name != tt.flags.NodeName {
				t.Errorf("name %q", n.Name)
			}
		})
	}
	opts.Restored.Data = []byte(strings.Replace(stored, "maxPods", "maximumPods", 1))
	_, _, err := LoadInit(t.Context(), nil, InitFlags{}, opts)
	fact.Error(t, err, "s.db", "maximumPods")
}
