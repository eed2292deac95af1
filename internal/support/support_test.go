// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fixture"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// canaries are unique values, by place.
type canaries map[string]string

// token, certificate key and password look like real ones.
func (c canaries) token(place string) string {
	c[place] = randomHex(8)
	return "abcdef." + c[place]
}

func (c canaries) hexKey(place string) string {
	c[place] = randomHex(32)
	return c[place]
}

func (c canaries) password(place string) string {
	c[place] = "canary" + randomHex(6)
	return c[place]
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// pem returns a certificate and its key. A line in the middle of the key is the canary.
func (c canaries) pem(place string) (cert, key string) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: place}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	data, err := certs.EncodeKey(private)
	if err != nil {
		panic(err)
	}
	c[place] = strings.Split(string(data), "\n")[1][8:40]
	return string(certs.EncodeCerts(leaf)), string(data)
}

type stage struct {
	*teststage.Host
	all bool // the bundle has all namespaces
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{Host: teststage.New(t)}
	s.On.Unit = func(context.Context, string) (host.UnitState, error) {
		return host.UnitState{LoadState: "loaded", ActiveState: "failed", SubState: "failed", Result: "exit-code"}, nil
	}
	s.Has.Names = map[string]string{}
	s.Has.Sandboxes = []host.Sandbox{{ID: strings.Repeat("b", 64), Pod: "etcd-cp-1", Namespace: "kube-system"}}
	return s
}

// logs adds lines to the kubelet's log.
func (s *stage) logs(lines ...string) {
	for _, line := range lines {
		s.Has.Journal = append(s.Has.Journal, host.JournalEntry{Time: time.Now(), Program: "kubelet", Message: line})
	}
}

func (s *stage) put(t *testing.T, path, text string) {
	t.Helper()
	fixture.Put(t, s.Root, path, text)
	if err := os.Chmod(filepath.Join(s.Root, path), 0o600); err != nil {
		t.Fatal(err)
	}
}

var errDark = errors.New("out of order")

// dark makes everything but files unreadable.
func (s *stage) dark() {
	s.Fail = map[string]error{"Unit": errDark, "ContainerStates": errDark, "Sandboxes": errDark}
}

// strew puts a secret into everything the bundle reads.
func strew(t *testing.T) (*stage, canaries) {
	t.Helper()
	c, s := canaries{}, newStage(t)
	kubeconfig := func(name string) string {
		cert, key := c.pem(name + " key")
		b64 := base64.StdEncoding.EncodeToString
		return fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: k, user: a}}]\n"+
			"clusters: [{name: k, cluster: {server: \"https://api.invalid:6443\", certificate-authority-data: %s}}]\n"+
			"users:\n- name: a\n  user: {client-certificate-data: %s, client-key-data: %s, token: %s, password: %s}\n",
			b64([]byte(cert)), b64([]byte(cert)), b64([]byte(key)), c.token(name+" token"), c.password(name+" password"))
	}
	for _, name := range []string{"admin.conf", "super-admin.conf", "kubelet.conf", "bootstrap-kubelet.conf"} {
		s.put(t, "/etc/kubernetes/"+name, kubeconfig(name))
	}
	s.put(t, "/etc/kubernetes/manifests/etcd.yaml", fmt.Sprintf("kind: Pod\nspec:\n  containers:\n  - name: etcd\n    command: [etcd, --password=%s]\n    env: [{name: A, value: %s}, {name: HTTP_PROXY, value: \"http://u:%s@p:1\"}]\n",
		c.password("flag"), c.password("environment of a Pod"), c.password("proxy of a Pod")))
	s.put(t, "/etc/kubernetes/manifests/broken.yaml", "{ token: "+c.token("broken manifest"))
	s.put(t, "/etc/kubernetes/manifests/secret.yaml", "kind: Secret\ndata: {a: "+c.password("Secret")+"}\n---\nkind: X\ncertificateKey: "+c.hexKey("certificate key")+"\n")
	s.put(t, "/etc/kubernetes/user.conf", fmt.Sprintf("kind: Config\nusers: [{name: a, user: {exec: {command: get, args: [--client-secret, %s, %s]}}}]\n",
		c.password("argument of an exec plugin"), c.password("operand of an exec plugin")))
	s.put(t, "/etc/kubernetes/manifests/own.yaml", fmt.Sprintf("kind: Pod\nspec: {containers: [{name: own, command: [own, --client-secret, %s], args: [--password, %s]}]}\n",
		c.password("item of a command"), c.password("item of arguments")))
	s.put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\nstaticPodURLHeader: {Authorization: [\"Bearer "+c.password("header")+"\"], X: ["+c.password("other header")+"]}\n")
	s.put(t, "/var/lib/kubelet/instance-config.yaml", "token: "+c.token("instance configuration"))
	s.put(t, "/var/lib/kubelet/kubeadm-flags.env", "KUBELET_KUBEADM_ARGS=\"--token="+c.password("flags")+" --client-secret "+c.password("flag's next word")+"\"\nB="+c.password("flags' file")+"\n")
	s.put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--password="+c.password("defaults")+"\nAWS_SECRET_ACCESS_KEY="+c.password("variable")+"\nHTTP_PROXY=u:"+c.password("bare proxy")+"@p:1\n")
	s.put(t, "/etc/sysconfig/kubelet", "#A="+c.password("comment")+"\nB=\"a\n"+c.password("variable's second line")+"\"\n")
	s.put(t, "/etc/systemd/system/kubelet.service.d/http-proxy.conf", "[Service]\nEnvironment=HTTPS_PROXY=http://u:"+c.password("unit's proxy")+"@p:1\nEnvironment=X="+c.password("unit's environment")+"\n")
	s.put(t, "/etc/systemd/system/kubelet.service.d/20-environment.conf", "[Service]\nEnvironment = A="+c.password("behind blanks")+"\nEnvironment=PATH=/bin B="+c.password("behind a path")+" \\\n  C="+c.password("on the next line")+"\n")
	s.put(t, "/etc/hosts", "192.0.2.1 a # password="+c.password("hosts")+"\n")
	s.put(t, "/etc/resolv.conf", "# token: "+c.token("resolv.conf")+"\n")
	cert, key := c.pem("pki")
	s.put(t, "/etc/kubernetes/pki/ca.crt", cert)
	s.put(t, "/etc/kubernetes/pki/ca.key", key)
	cert, key = c.pem("mixed")
	s.put(t, "/var/lib/kubelet/pki/kubelet-client-current.pem", key+cert)
	cert, key = c.pem("key in a certificate's place")
	s.put(t, "/etc/kubernetes/pki/apiserver.crt", key)
	_, key = c.pem("key in a log")
	s.logs(
		"token "+c.token("journal"), "key "+c.hexKey("key in the journal"), "http://u:"+c.password("proxy in the journal")+"@p:1",
		`{"token":"`+c.password("JSON in the journal")+`"}`, "Authorization: Bearer "+c.password("header in the journal"),
		strings.ReplaceAll(key, "\n", `\n`), `E1121 "command failed" err="bad token `+c.token("evidence")+`"`,
	)
	s.Has.Containers = []host.ContainerState{{
		ID: strings.Repeat("a", 64), Name: "etcd", Namespace: "kube-system", State: "exited", Created: time.Now().Add(time.Minute), LogPath: "/var/log/pods/etcd/0.log", Message: "token " + c.token("message"),
	}}
	s.put(t, "/var/log/pods/etcd/0.log", "2026-11-21T09:00:00Z stderr F unknown flag: "+c.token("log")+" in "+strings.Repeat("a", 64)+"\n2026-11-21T09:00:00Z stderr F "+c.hexKey("key in the log")+"\n"+cert)
	return s, c
}

func collect(t *testing.T, s *stage) map[string]string {
	t.Helper()
	data, err := Collect(t.Context(), s, Node{
		AllNamespaces: s.all,
		Target:        diagnose.Target{Socket: "unix:///run/x.sock", Kubelet: "/var/lib/kubelet", Kubeconfigs: "/etc/kubernetes", Manifests: "/etc/kubernetes/manifests"},
		PKI:           "/etc/kubernetes/pki", Kubernetes: "/etc/kubernetes", Version: "v0",
	})
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(zip); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || head.Mode != 0o600 || strings.Contains(head.Name, "..") {
			t.Errorf("%s: mode %o, %v", head.Name, head.Mode, err)
		}
		files[strings.TrimPrefix(head.Name, "slipway-support/")] = string(text)
	}
}

func TestBundleHoldsNoSecret(t *testing.T) {
	s, c := strew(t)
	if len(c) < 30 {
		t.Fatalf("only %d secrets", len(c))
	}
	for _, dark := range []bool{false, true} {
		if dark {
			s.dark()
		}
		c.absent(t, collect(t, s))
	}
}

// absent checks that a bundle's files contain no canary.
func (c canaries) absent(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		for place, secret := range c {
			for form, value := range map[string]string{
				"raw": secret, "hex": hex.EncodeToString([]byte(secret)), "base64": base64.StdEncoding.EncodeToString([]byte(secret))[:len(secret)/3*4],
			} {
				if strings.Contains(text, value) {
					t.Errorf("%s holds the secret of %s (%s)", name, place, form)
				}
			}
		}
	}
	t.Logf("%d secrets were looked for in %d files", len(c), len(files))
}

// TestUnitsAreInTheBundleOnce, whether /lib is a directory or a link to /usr/lib.
func TestUnitsAreInTheBundleOnce(t *testing.T) {
	for _, merged := range []bool{true, false} {
		s := newStage(t)
		s.put(t, "/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", "[Service]\n")
		s.put(t, "/usr/local/lib/systemd/system/kubelet.service", "[Service]\n")
		want := 2
		if merged {
			if err := os.Symlink("usr/lib", filepath.Join(s.Root, "lib")); err != nil {
				t.Fatal(err)
			}
		} else {
			s.put(t, "/lib/systemd/system/kubelet.service.d/20-own.conf", "[Service]\n")
			want = 3
		}
		var found []string
		for name := range collect(t, s) {
			if strings.Contains(name, "lib/systemd/system/kubelet.service") {
				found = append(found, name)
			}
		}
		if len(found) != want {
			t.Errorf("merged %t: %v", merged, found)
		}
	}
}

// TestInterruptedBundle: an interrupted run makes no bundle, which would pass for a complete one.
func TestInterruptedBundle(t *testing.T) {
	s := newStage(t)
	ctx, interrupt := context.WithCancel(t.Context())
	s.On.Unit = func(context.Context, string) (host.UnitState, error) {
		interrupt()
		return host.UnitState{}, context.Canceled
	}
	data, err := Collect(ctx, s, Node{Target: diagnose.Target{Manifests: "/etc/kubernetes/manifests"}, Version: "v1"})
	if data != nil || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("%d bytes, error %v", len(data), err)
	}
}

func TestBundleHoldsWhatMatters(t *testing.T) {
	s, _ := strew(t)
	files := collect(t, s)
	for name, want := range map[string]string{
		"README.txt":                        "kube-system",
		"diagnosis.txt":                     "[bad-flag] etcd: ",
		"diagnosis.json":                    `"cause": "bad-flag"`,
		"containers.txt":                    "container " + strings.Repeat("a", 64),
		"logs/000_kube-system__etcd.log":    "unknown flag: ",
		"host/facts.txt":                    "kubelet: Kubernetes v1.37.2",
		"host/network.txt":                  "192.0.2.0/24 dev eth0",
		"host/disks.txt":                    "MiB free",
		"host/hosts":                        "192.0.2.1 a",
		"units/kubelet.service.txt":         "ActiveState:failed",
		"units/kubelet.service.log":         "kubelet: token abcdef.[redacted]",
		"kubelet/etc-default-kubelet":       "AWS_SECRET_ACCESS_KEY=[redacted]",
		"kubernetes/manifests/etcd.yaml":    "name: HTTP_PROXY",
		"kubernetes/admin.conf":             "server: https://api.invalid:6443",
		"kubernetes/kubelet.conf":           "certificate-authority-data: LS0t",
		"kubelet/config.yaml":               "kind: KubeletConfiguration",
		"kubelet/kubeadm-flags.env":         "KUBELET_KUBEADM_ARGS=",
		"pki/files.txt":                     "-rw------- /etc/kubernetes/pki/ca.key",
		"pki/etc/kubernetes/pki/ca.crt.txt": "subject: CN=pki",
		"pki/var/lib/kubelet/pki/kubelet-client-current.pem.txt":     "subject: CN=mixed",
		"units/etc/systemd/system/kubelet.service.d/http-proxy.conf": "Environment=X=[redacted]",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s lacks %q:\n%s", name, want, files[name])
		}
	}
	s.dark()
	if text := collect(t, s)["containers.txt"]; !strings.Contains(text, errDark.Error()) {
		t.Errorf("without a runtime: %s", text)
	}
}
