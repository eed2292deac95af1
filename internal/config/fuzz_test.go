// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/google/go-cmp/cmp"
)

// secretShapes match tokens and certificate keys.
var secretShapes = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|[0-9a-fA-F]{64}`)

// telling fails if a loader's messages contain a token or a key from its input, or a control character that moves a terminal's
// cursor.
func telling(t *testing.T, input string, err error, warnings []string) {
	t.Helper()
	var faults Faults
	if err != nil && !errors.As(err, &faults) {
		t.Fatalf("%T: %v", err, err)
	}
	said := warnings
	for _, fault := range faults {
		said = append(said, fault.Error())
	}
	for _, text := range said {
		if strings.ContainsAny(text, "\n\r\x1b") {
			t.Errorf("control characters in %q", text)
		}
		for _, secret := range secretShapes.FindAllString(input, -1) {
			if strings.Contains(text, secret) {
				t.Errorf("%q holds %q", text, secret)
			}
		}
	}
}

// within fails if a loader takes unreasonably long for a file of a few kilobytes. The limit allows for the fuzzing engine and a
// shared machine.
func within(t *testing.T, limit time.Duration) func() {
	started := time.Now()
	return func() {
		if took := time.Since(started); took > limit {
			t.Errorf("took %s", took)
		}
	}
}

// FuzzLoad: for any file, loading neither panics nor fails without naming a fault. Migrating a migrated file doesn't change it.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob(configs + "/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nbootstrapTokens:\n-\n-"))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer within(t, 10*time.Second)()
		src := Source{Name: "f.yaml", Data: data}
		_, warnings, err := LoadInit(t.Context(), &src, InitFlags{}, testOptions())
		telling(t, string(data), err, warnings)
		_, warnings, err = LoadJoin(&src, JoinFlags{}, testOptions())
		telling(t, string(data), err, warnings)
		first, warnings, err := Migrate(t.Context(), src, countedTokens())
		telling(t, string(data), err, warnings)
		if err != nil {
			return
		}
		second, _, err := Migrate(t.Context(), Source{Name: "first", Data: first}, testOptions())
		if err != nil {
			t.Fatalf("what Migrate wrote is refused: %v\n%s", err, first)
		}
		sameText(t, first, second)
	})
}

// countedTokens generates distinct tokens, as a file requires.
func countedTokens() Options {
	opts, n := testOptions(), 0
	opts.NewToken = func() (string, string) {
		n++
		return fmt.Sprintf("%06d", n), "0123456789abcdef"
	}
	return opts
}

// FuzzLoadCluster: a cluster's stored configuration is input from outside. If accepted, it has plain absolute paths, doesn't
// change in the next upload, and gives the same node when it's read again.
func FuzzLoadCluster(f *testing.F) {
	kubelet, kubeProxy := stored(f, "kubelet-config", "kubelet"), stored(f, "kube-proxy", "config.conf")
	f.Add(stored(f, "kubeadm-config", "ClusterConfiguration"), kubelet, kubeProxy)
	f.Add([]byte(storedHead+"kubernetesVersion: v1.37.2\n"), []byte(nil), []byte(nil))
	f.Add([]byte(storedHead+"kubernetesVersion: 1.37.2\ncertificatesDir: /a/../b\netcd: {local: {dataDir: /c/}}\ncontrolPlaneEndpoint: '[fd00::1]'\n"), []byte("a: &a [*a]"), kubeProxy)
	f.Add([]byte(storedHead+"kubernetesVersion: v1.37.2\nkubernetesVersion: "+someToken+"\n"), kubelet, []byte("{}"))
	f.Add([]byte(storedHead+"kubernetesVersion: v1.37.2\nnew: &a {b: [1, 2.50, 2026-01-01]}\nfeatureGates: {New: true}\netcd: {local: {dataDir: /c, new: *a}}\n"), append(kubelet, "new: {a: b}\n"...), append(kubeProxy, "\nnew: 1\n"...))
	f.Fuzz(func(t *testing.T, cluster, kubelet, kubeProxy []byte) {
		defer within(t, 10*time.Second)()
		self := &JoinConfiguration{ControlPlane: &JoinControlPlane{}}
		n, warnings, err := LoadCluster(cluster, kubelet, kubeProxy, self, testOptions())
		telling(t, string(cluster)+"\n"+string(kubelet)+"\n"+string(kubeProxy), err, warnings)
		if err != nil {
			return
		}
		for _, path := range []string{n.Paths.PKI, n.Paths.Kubernetes, n.Paths.Kubelet} {
			if !filepath.IsAbs(path) || filepath.Clean(path) != path {
				t.Errorf("path %q", path)
			}
		}
		first := must(n.KubeadmConfigYAML())
		again, _, err := LoadCluster(first, must(n.KubeletYAML()), must(n.KubeProxyYAML()), self, testOptions())
		if err != nil {
			t.Fatalf("the upload is refused: %v\n%s", err, first)
		}
		if diff := cmp.Diff(n, again, cmp.AllowUnexported(Secret{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.FilterPath(given, cmp.Ignore())); diff != "" {
			t.Errorf("read again:\n%s", diff)
		}
	})
}

// given matches the fields that record which documents there were, and their unknown parts.
func given(p cmp.Path) bool {
	last := p.Last().String()
	return last == ".KubeletGiven" || last == ".KubeProxyGiven" || last == ".Extras"
}

// FuzzNetworks: accepted networks are one of each family, don't overlap, and contain the addresses Slipway takes from them.
func FuzzNetworks(f *testing.F) {
	for _, seed := range [][3]string{
		{"10.96.0.0/12", "10.244.0.0/16", "192.0.2.1"}, {"10.96.0.0/12,fd00:10:96::/112", "10.244.0.0/16,fd00:10:244::/56", ""},
		{"10.96.0.1/28", "10.0.0.0/8", "10.1.1.1"}, {"fd00::/108", "", "2001:db8::1"}, {"::ffff:10.0.0.0/112", "010.0.0.0/8", "::"}, {"255.255.255.240/28", " ,", "fe80::1%eth0"},
	} {
		f.Add(seed[0], seed[1], seed[2])
	}
	f.Fuzz(func(t *testing.T, services, pods, advertise string) {
		flags := InitFlags{Given: []string{"service-cidr", "pod-network-cidr", "apiserver-advertise-address"},
			ServiceCIDR: services, PodNetworkCIDR: pods, APIServerAdvertiseAddress: advertise}
		n, warnings, err := LoadInit(t.Context(), nil, flags, testOptions())
		telling(t, services+"\n"+pods+"\n"+advertise, err, warnings)
		if err != nil {
			return
		}
		all := append(n.ServiceSubnets(), n.PodSubnets()...)
		for i, a := range all {
			for _, b := range all[i+1:] {
				if a.Overlaps(b) {
					t.Errorf("%s and %s overlap", a, b)
				}
			}
			if a.Contains(n.AdvertiseAddress) {
				t.Errorf("%s holds the node's address %s", a, n.AdvertiseAddress)
			}
		}
		for i, ip := range n.ClusterDNSIPs() {
			if !n.ServiceSubnets()[i].Contains(ip) {
				t.Errorf("%s is not in %s", ip, n.ServiceSubnets()[i])
			}
		}
		if !n.ServiceSubnets()[0].Contains(n.APIServiceIP()) || !n.AdvertiseAddress.IsGlobalUnicast() {
			t.Errorf("service %s, node %s", n.APIServiceIP(), n.AdvertiseAddress)
		}
		sameAgain(t, n)
	})
}

// sameAgain fails if the upload of a node's cluster reads back differently.
func sameAgain(t *testing.T, n *Node) {
	t.Helper()
	first := must(n.KubeadmConfigYAML())
	again, _, err := LoadCluster(first, nil, nil, nil, testOptions())
	if err != nil {
		t.Fatalf("the upload is refused: %v\n%s", err, first)
	}
	sameText(t, first, must(again.KubeadmConfigYAML()))
}

// FuzzToken: a token is accepted unchanged or refused, regardless of where it's given, and no error repeats it.
func FuzzToken(f *testing.F) {
	for _, seed := range []string{someToken, otherToken, "abcdef", "abcdef.0123456789ABCDEF", "abcdef.0123456789abcdef\n", "", ".", "abcdef.", "abcdef.0123456789abcdef.0123456789abcdef"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		id, idErr := TokenID(token)
		list, warnings, err := LoadTokens(nil, TokenFlags{Token: token}, testOptions())
		telling(t, token, err, warnings)
		_, warnings, joinErr := LoadJoin(nil, JoinFlags{
			Given: []string{"token", "discovery-token-unsafe-skip-ca-verification"}, Endpoint: "a:6443", Token: token, SkipCAVerification: true,
		}, testOptions())
		telling(t, token, joinErr, warnings)
		for _, err := range []error{idErr, err, joinErr} {
			// Shorter tokens may be part of some word of the message by chance.
			if err != nil && len(token) > 12 && strings.Contains(err.Error(), token) {
				t.Errorf("%v holds the token", err)
			}
		}
		if token == "" {
			return // one is generated
		}
		if err == nil != (joinErr == nil) || err == nil && (idErr != nil || list[0].ID != id || id+"."+list[0].Secret.Reveal() != token) {
			t.Errorf("create %v, %v; join %v; ID %q, %v", list, err, joinErr, id, idErr)
		}
	})
}

// FuzzPin: only the hash of a certificate's key is a pin.
func FuzzPin(f *testing.F) {
	for _, seed := range []string{somePin, strings.ToUpper(somePin), "sha256:00", "sha512:" + somePin[7:], somePin + "\n", somePin[7:], ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, pin string) {
		_, warnings, err := LoadJoin(nil, JoinFlags{
			Given: []string{"token", "discovery-token-ca-cert-hash"}, Endpoint: "a:6443", Token: someToken, CACertHashes: []string{pin},
		}, testOptions())
		telling(t, someToken, err, warnings)
		hash, ok := strings.CutPrefix(pin, "sha256:")
		sum, hexErr := hex.DecodeString(hash)
		if want := ok && hexErr == nil && len(sum) == 32; want != (err == nil) {
			t.Errorf("a pin: %v, got %v", want, err)
		}
	})
}

// FuzzHostPort: every client can dial an accepted endpoint, and it doesn't change when it's written and read again.
func FuzzHostPort(f *testing.F) {
	for _, seed := range []string{"cp.example.org", "cp.example.org:6443", "192.0.2.1:1", "fd00::1", "[fd00::1]", "[fd00::1]:6443", "a:", "a:0", "a:065", "[a]:1", "::1:80", "[::1", "https://a:1", "fe80::1%eth0", "[fe80::1%25eth0]:80", "a:+1", "]:1", "[[::1]]:1", "0000:::"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, warnings, err := LoadJoin(nil, JoinFlags{
			Given: []string{"token", "discovery-token-unsafe-skip-ca-verification"}, Endpoint: text, Token: someToken, SkipCAVerification: true,
		}, testOptions())
		telling(t, text, err, warnings)
		if err == nil {
			dialable(t, text)
		}
		n, warnings, err := LoadInit(t.Context(), nil, InitFlags{Given: []string{"control-plane-endpoint"}, ControlPlaneEndpoint: text}, testOptions())
		telling(t, text, err, warnings)
		if err != nil {
			return
		}
		dialable(t, n.Endpoint())
		if text != "" && n.Cluster.ControlPlaneEndpoint != n.Endpoint() {
			t.Errorf("%q is kept as %q and dialed as %q", text, n.Cluster.ControlPlaneEndpoint, n.Endpoint())
		}
		sameAgain(t, n)
	})
}

// dialable fails unless a client can split an endpoint into host and port.
func dialable(t *testing.T, endpoint string) {
	t.Helper()
	host, port, err := net.SplitHostPort(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil || port == "0" {
		t.Errorf("port %q: %v", port, err)
	}
	u, err := url.Parse("https://" + endpoint + "/x")
	if err != nil || u.Hostname() != host || u.Port() != port || u.Path != "/x" || u.User != nil {
		t.Errorf("as a URL: %v, %v", u, err)
	}
	if _, err := netip.ParseAddr(host); err != nil && subdomainFault(host) != "" {
		t.Errorf("host %q", host)
	}
}
