// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

const golden = "../testdata/golden"

func read(t *testing.T, elem ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// load returns the desired state of a host called vm from the text of a file.
func load(t *testing.T, input []byte) *config.Node {
	t.Helper()
	n, _, err := config.LoadInit(t.Context(), &config.Source{Name: "input.yaml", Data: input}, config.InitFlags{}, config.Options{
		Facts: config.HostFacts{
			Hostname: "vm",
			IPv4:     netip.MustParseAddr("192.168.99.11"),
			IPv6:     netip.MustParseAddr("fd00:99::11"),
			Sockets:  config.KnownSockets()[:1],
		},
		NewToken: func() (string, string) { return "abcdef", "0123456789abcdef" },
		Now:      time.Now,
		Existing: true, // some settings contradict each other
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// debian is a host with Debian's directories for CAs.
func debian() HostView {
	return HostView{CertDirs: []string{"/etc/ca-certificates", "/usr/local/share/ca-certificates", "/usr/share/ca-certificates"}}
}

// TestGolden compares every static Pod byte for byte: the four cases of the reference and, in testdata, kubeadm 1.37.2's output
// for unusual inputs.
func TestGolden(t *testing.T) {
	proxied := debian()
	proxied.ProxyEnv = ProxyEnv([]string{"HTTP_PROXY=http://p:1", "https_proxy=http://q:2", "no_proxy=a,b", "NO_PROXY=c",
		"all_proxy=z", "ALL_PROXY=y", "FTP_PROXY=f", "http_proxy="})
	mixed := debian()
	mixed.ProxyEnv = ProxyEnv([]string{"FOO_PROXY=1", "proxy=2", "xproxy=3", "a_Proxy=4", "PROXY_A=5", "PATH=/bin"})
	rootless := debian()
	rootless.Users = &Users{map[string]Account{EtcdUser: {102, 105}, APIServerUser: {103, 106}, ControllerManagerUser: {104, 107}, SchedulerUser: {105, 108}}, 109}
	external := debian()
	external.ExternalCA = true
	reference := func(name string) (string, string) {
		return filepath.Join(golden, "node", name, "input.yaml"), filepath.Join(golden, "node", name, "files/kubernetes/manifests")
	}
	own := func(name string) (string, string) {
		return filepath.Join("testdata", name, "input.yaml"), filepath.Join("testdata", name)
	}
	for _, tt := range []struct {
		name  string
		files func(string) (input, dir string)
		view  HostView
	}{
		{"default", reference, debian()},
		{"podcidr", reference, debian()},
		{"external-etcd", reference, debian()},
		{"dualstack", reference, debian()},
		{"extra-args", own, proxied},
		{"small-things", own, mixed},
		{"ipv6", own, debian()},
		{"dualstack-ipv6-first", own, debian()},
		{"bind-addresses", own, debian()},
		{"etcd-addresses", own, debian()},
		{"etcd-certs", own, debian()},
		{"volumes", own, debian()},
		{"rootless", own, rootless},
		{"rootless-external-etcd", own, rootless},
		{"external-ca", own, external},
	} {
		t.Run(tt.name, func(t *testing.T) {
			input, dir := tt.files(tt.name)
			n := load(t, read(t, input))
			pods := []*corev1.Pod{APIServer(n, tt.view), ControllerManager(n, tt.view), Scheduler(n, tt.view)}
			if n.Cluster.Etcd.External == nil {
				pods = append(pods, Etcd(n, tt.view, nil))
			} else if _, err := os.Stat(filepath.Join(dir, "etcd.yaml")); err == nil {
				t.Error("a manifest of etcd is expected")
			}
			for _, pod := range pods {
				got, err := Encode(pod)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(read(t, dir, pod.Name+".yaml")), string(got)); diff != "" {
					t.Errorf("%s, -reference +got:\n%s", pod.Name, diff)
				}
			}
		})
	}
}

func TestEtcdJoins(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	pod := Etcd(n, HostView{}, []Member{{"cp-0", "https://192.168.99.10:2380"}, {"cp-1", "https://192.168.99.11:2380"}})
	for _, want := range []string{
		"--initial-cluster=cp-0=https://192.168.99.10:2380,cp-1=https://192.168.99.11:2380",
		"--initial-cluster-state=existing",
	} {
		if !slices.Contains(pod.Spec.Containers[0].Command, want) {
			t.Errorf("no %s in %q", want, pod.Spec.Containers[0].Command)
		}
	}
}

// TestExtraArgsReplace: a component takes underscores for dashes, and would add up lists of both.
func TestExtraArgsReplace(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	n.Cluster.APIServer.ExtraArgs = []config.Arg{{Name: "authorization_mode", Value: "Node"}}
	if modes := FlagsNamed(PodFlags(APIServer(n, HostView{})), "authorization-mode"); len(modes) != 1 || modes[0].Value != "Node" {
		t.Errorf("modes %+v", modes)
	}
}

// TestFlagsOfEtcd: variables stand for flags that aren't given.
func TestFlagsOfEtcd(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"etcd", "-name", "a", "--wal-dir="}, Env: []corev1.EnvVar{
		{Name: "ETCD_NAME", Value: "b"}, {Name: "ETCD_WAL_DIR", Value: "/wal"}, {Name: EtcdVariable("data-dir"), Value: "/data"}, {Name: "OTHER", Value: "c"},
	}}}}}
	if m, _ := ReadEtcd(pod); m.Name != "a" || m.WALDir != "" || m.DataDir != "/data" || len(EtcdFlags(pod)) != 3 {
		t.Errorf("%+v", m)
	}
}

// TestPeerURLs: an etcd may have several.
func TestPeerURLs(t *testing.T) {
	for flag, want := range map[string][]string{
		"https://b:2380,https://a:2380": {"https://b:2380", "https://a:2380"},
		"https://a:2380":                {"https://a:2380"},
	} {
		m, found := ReadEtcd(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Command: []string{"etcd", "--initial-advertise-peer-urls=" + flag}}}}})
		if got := m.PeerURLs(); !found || m.PeerURL != want[0] || !slices.Equal(got, want) {
			t.Errorf("%s: %q", flag, got)
		}
	}
}

// TestImages: the kubelet pulls an image with a digest or a tag only once, unless the tag is latest.
func TestImages(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0", 64)
	for image, want := range map[string]struct {
		repository, tag string
		pulls           corev1.PullPolicy
	}{
		"a:5000/b":              {"a:5000/b", "", corev1.PullAlways},
		"a:5000/b:v1":           {"a:5000/b", "v1", corev1.PullIfNotPresent},
		"b:latest":              {"b", "latest", corev1.PullAlways},
		"a:5000/b" + digest:     {"a:5000/b", "", corev1.PullIfNotPresent},
		"a/b:v1.2.3_x" + digest: {"a/b", "v1.2.3_x", corev1.PullIfNotPresent},
		"b:latest" + digest:     {"b", "latest", corev1.PullAlways},
	} {
		c := corev1.Container{Image: image}
		normalizeContainer(&c, false)
		if repository, tag := SplitImage(image); repository != want.repository || tag != want.tag || c.ImagePullPolicy != want.pulls {
			t.Errorf("%s: %s, %s, pulled %s", image, repository, tag, c.ImagePullPolicy)
		}
	}
}

// The probes use the URL of etcd's metrics, if it's valid.
func TestEtcdEndpoint(t *testing.T) {
	for _, tt := range []struct {
		urls   []string
		host   string
		port   int32
		scheme corev1.URIScheme
	}{
		{nil, "127.0.0.1", 2381, "HTTP"},
		{[]string{""}, "127.0.0.1", 2381, "HTTP"},
		{[]string{"http://1.2.3.4"}, "1.2.3.4", 2381, "HTTP"},
		{[]string{"http://1.2.3.4:1", "http://1.2.3.5:2,http://1.2.3.6:3"}, "1.2.3.5", 2, "HTTP"},
		{[]string{"localhost:99"}, "127.0.0.1", 2381, "HTTP"},
		{[]string{"https://a_b:xx"}, "127.0.0.1", 2381, "HTTP"},
		{[]string{"https://[::1]:78"}, "::1", 78, "HTTPS"},
		{[]string{"https://:78"}, "127.0.0.1", 78, "HTTPS"},
		{[]string{" http://1.1.1.1:78 "}, "127.0.0.1", 2381, "HTTP"},
	} {
		n := load(t, read(t, golden, "node/default/input.yaml"))
		for _, u := range tt.urls {
			n.Cluster.Etcd.Local.ExtraArgs = append(n.Cluster.Etcd.Local.ExtraArgs, config.Arg{Name: "listen-metrics-urls", Value: u})
		}
		c := Etcd(n, HostView{}, nil).Spec.Containers[0]
		get := c.StartupProbe.HTTPGet
		if get.Host != tt.host || get.Scheme != tt.scheme || c.Ports[0].ContainerPort != tt.port {
			t.Errorf("%q: %s %s:%d, want %s %s:%d", tt.urls, get.Scheme, get.Host, c.Ports[0].ContainerPort, tt.scheme, tt.host, tt.port)
		}
	}
}

// TestExternalEtcdSiblings: a directory is mounted even if its name starts with another's. kubeadm doesn't mount it, so its API
// server can't read the certificate.
func TestExternalEtcdSiblings(t *testing.T) {
	n := load(t, read(t, golden, "node/external-etcd/input.yaml"))
	n.Cluster.Etcd.External.CAFile = "/opt/etcd/ca.crt"
	n.Cluster.Etcd.External.CertFile = "/opt/etcd-client/c.crt"
	n.Cluster.Etcd.External.KeyFile = "/opt/etcd/deep/c.key"
	got := map[string]string{}
	for _, v := range APIServer(n, debian()).Spec.Volumes {
		got[v.Name] = v.HostPath.Path
	}
	for name, path := range map[string]string{"etcd-certs-0": "/opt/etcd", "etcd-certs-1": "/opt/etcd-client", "etcd-certs-2": ""} {
		if got[name] != path {
			t.Errorf("%s: %q, want %q", name, got[name], path)
		}
	}
}

func TestOtherCertDirs(t *testing.T) {
	n := load(t, read(t, golden, "node/default/input.yaml"))
	var got []string
	for _, m := range ControllerManager(n, HostView{CertDirs: CertDirs()}).Spec.Containers[0].VolumeMounts {
		got = append(got, m.Name+" "+m.MountPath)
	}
	want := []string{
		"ca-certs /etc/ssl/certs",
		"etc-ca-certificates /etc/ca-certificates",
		"etc-pki-ca-trust /etc/pki/ca-trust",
		"etc-pki-tls-certs /etc/pki/tls/certs",
		"k8s-certs /etc/kubernetes/pki",
		"kubeconfig /etc/kubernetes/controller-manager.conf",
		"usr-local-share-ca-certificates /usr/local/share/ca-certificates",
		"usr-share-ca-certificates /usr/share/ca-certificates",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestOwnerships(t *testing.T) {
	const pki = "/etc/kubernetes/pki/"
	always := []string{
		pki + "apiserver.key kubeadm-kas:kubeadm-kas 0600 [kube-apiserver] false",
		pki + "apiserver-kubelet-client.key kubeadm-kas:kubeadm-kas 0600 [kube-apiserver] false",
		pki + "front-proxy-client.key kubeadm-kas:kubeadm-kas 0600 [kube-apiserver] false",
		pki + "sa.pub kubeadm-kas:kubeadm-kas 0600 [kube-apiserver] false",
		pki + "ca.key kubeadm-kcm:kubeadm-kcm 0600 [kube-controller-manager] false",
		"/etc/kubernetes/controller-manager.conf kubeadm-kcm:kubeadm-kcm 0600 [kube-controller-manager] false",
		"/etc/kubernetes/scheduler.conf kubeadm-ks:kubeadm-ks 0600 [kube-scheduler] false",
		pki + "sa.key root:kubeadm-sa-key-readers 0640 [kube-apiserver kube-controller-manager] false",
	}
	for name, more := range map[string][]string{
		"default": {
			pki + "apiserver-etcd-client.key kubeadm-kas:kubeadm-kas 0600 [kube-apiserver] false",
			pki + "etcd/server.key kubeadm-etcd:kubeadm-etcd 0600 [etcd] false",
			pki + "etcd/peer.key kubeadm-etcd:kubeadm-etcd 0600 [etcd] false",
			"/var/lib/etcd kubeadm-etcd:kubeadm-etcd 0700 [etcd] true",
		},
		"external-etcd": {pki + "apiserver-etcd-client.key kubeadm-kas:kubeadm-kas 0600 [kube-apiserver] false"},
		"elsewhere":     nil,
	} {
		input := read(t, golden, "node", strings.Replace(name, "elsewhere", "external-etcd", 1), "input.yaml")
		if name == "elsewhere" {
			input = []byte(strings.ReplaceAll(string(input), "File: /etc/kubernetes/pki/", "File: /etc/ssl/"))
		}
		var got []string
		for _, o := range Ownerships(load(t, input)) {
			got = append(got, fmt.Sprintf("%s %s:%s %04o %v %v", o.Path, o.User, o.Group, o.Mode, o.Components, o.Tree))
		}
		want := slices.Concat(always, more)
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
	}
}

// TestCAKeysOfExternalEtcd: an external etcd's keyFile gives no CA's key to the API server's user.
func TestCAKeysOfExternalEtcd(t *testing.T) {
	n := load(t, read(t, golden, "node", "external-etcd", "input.yaml"))
	for key, owned := range map[string]bool{
		"ca.key": false, "front-proxy-ca.key": false, "etcd/ca.key": false, "etcd/../ca.key": false, "etcd/client.key": true,
	} {
		n.Cluster.Etcd.External.KeyFile = n.Paths.PKI + "/" + key
		owns := slices.ContainsFunc(Ownerships(n), func(o Ownership) bool { return o.Path == n.Paths.PKI+"/"+key && o.User == APIServerUser })
		if owns != owned {
			t.Errorf("%s: %t", key, owns)
		}
	}
}

// The configuration is read-only: building Pods from it doesn't change it.
func TestConfigurationIsNotChanged(t *testing.T) {
	input := read(t, "testdata/extra-args/input.yaml")
	n, before := load(t, input), load(t, input)
	Etcd(n, debian(), nil)
	APIServer(n, debian())
	ControllerManager(n, debian())
	Scheduler(n, debian())
	if diff := cmp.Diff(before.Cluster, n.Cluster); diff != "" {
		t.Error(diff)
	}
}
