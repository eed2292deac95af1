// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/tier"
)

// answersAsKubeadm runs Slipway through a link named kubeadm, and compares it with kubeadm: the same version in the same form,
// and the same exit codes where nothing is done.
func answersAsKubeadm(m machine) {
	const link = "/root/kubeadm"
	m.must("ln", "-s", "/usr/local/bin/slipway", link)
	for _, form := range []string{"", "short", "json", "yaml"} {
		got, want := sameBuild(m.must(link, "version", "-o", form)), sameBuild(m.must("kubeadm", "version", "-o", form))
		if got != want {
			m.Errorf("version -o %q:\n%s\nkubeadm's:\n%s", form, got, want)
		}
	}
	for _, group := range []string{
		"", "help", "token", "token wrong", "config", "config print", "config images", "certs", "certs renew", "certs renew wrong",
		"kubeconfig", "init phase", "init phase wrong", "init phase certs", "join phase", "join phase control-plane-prepare", "reset phase",
	} {
		if got, want := m.exit(link, group), m.exit("kubeadm", group); got != want {
			m.Errorf("%q: %s, kubeadm's %s", group, got, want)
		}
	}
	out, err := m.try("slipway", "help", "wrong")
	if err == nil || !strings.Contains(out, `"wrong"`) {
		m.Errorf("help of nothing: %v, %s", err, out)
	}
}

// exit describes how a command line ended, and where it printed.
func (m machine) exit(program, args string) string {
	m.Helper()
	out := m.must("sh", "-c", program+" "+args+" >/tmp/out 2>/tmp/err; echo exit $?; "+
		"test -s /tmp/out && echo output; test -s /tmp/err && echo error; true")
	return strings.Join(strings.Fields(out), " ")
}

// ofBuild matches the differences between two builds of a version.
var ofBuild = regexp.MustCompile(`(?i)((?:GitCommit|GitTreeState|BuildDate|GoVersion)"?: ?"?)[^",\n]*`)

func sameBuild(version string) string { return ofBuild.ReplaceAllString(version, "$1") }

// worksWithoutSystemd hides the node's systemd from slipway, as in a container that builds an image.
func worksWithoutSystemd(m machine) {
	const missing = "init system"
	m.write("/root/slipway.yaml", document("", podSubnet))

	// A systemd that runs but doesn't answer stays an error.
	if out, err := m.hidden("mkdir -p /run/systemd/system && ", "init", "phase", "kubelet-start", "--config=/root/slipway.yaml"); err == nil ||
		!strings.Contains(out, "D-Bus") || strings.Contains(out, missing) {
		m.Errorf("with a broken D-Bus: %v\n%s", err, out)
	}
	for range 2 {
		out, err := m.hidden("", "init", "phase", "kubelet-start", "--config=/root/slipway.yaml")
		if err != nil || strings.Count(out, missing) != 1 {
			m.Errorf("kubelet-start: %v\n%s", err, out)
		}
	}
	m.must("test", "-s", "/var/lib/kubelet/config.yaml", "-a", "-s", "/var/lib/kubelet/kubeadm-flags.env", "-a", "-s", "/var/lib/kubelet/instance-config.yaml")
	if out, _ := m.hidden("", "preflight", "--config=/root/slipway.yaml"); !strings.Contains(out, "warning  Service-kubelet") || !strings.Contains(out, missing) {
		m.Errorf("preflight:\n%s", out)
	}
	if out, err := m.hidden("", "reset", "--force"); err != nil || !strings.Contains(out, missing) {
		m.Errorf("reset: %v\n%s", err, out)
	}
	if out, err := m.try("test", "-e", "/var/lib/kubelet/config.yaml"); err == nil {
		m.Errorf("reset left config.yaml %s", out)
	}
}

// hidden runs slipway in a mount namespace with an empty /run, which prepare may fill.
func (m machine) hidden(prepare string, args ...string) (string, error) {
	return m.try("unshare", "--mount", "--propagation=private", "sh", "-c",
		"mount -t tmpfs tmpfs /run && "+prepare+"exec slipway "+strings.Join(args, " "))
}

// rootlessDataDir is below the lab's mount of /var/lib/etcd, so that a hard link can point outside of it.
const rootlessDataDir = "/var/lib/etcd/data"

// rootlessReaders maps the users of a rootless control plane to the renewed files that each must read.
var rootlessReaders = map[string][]string{
	"kubeadm-etcd": {"/etc/kubernetes/pki/etcd/server.key", "/etc/kubernetes/pki/etcd/peer.key"},
	"kubeadm-kas": {"/etc/kubernetes/pki/apiserver.key", "/etc/kubernetes/pki/apiserver-kubelet-client.key",
		"/etc/kubernetes/pki/front-proxy-client.key", "/etc/kubernetes/pki/apiserver-etcd-client.key"},
	"kubeadm-kcm": {"/etc/kubernetes/controller-manager.conf"},
	"kubeadm-ks":  {"/etc/kubernetes/scheduler.conf"},
}

// TestRootless: links to root's files that another user plants in its directory don't give them away. Renewed credentials match
// and stay readable, even while the API is down.
func TestRootless(t *testing.T) {
	tier.OnlyFull(t, "phases/renew.TestRenewRootless")
	m := boot(t)
	m.init(document("", podSubnet+`
encryptionAlgorithm: ECDSA-P256
featureGates: {RootlessControlPlane: true}
etcd: {local: {dataDir: `+rootlessDataDir+`}}`))
	m.keepsWhatIsPlanted()
	for range 5 {
		m.must("slipway", "certs", "renew", "all")
		m.credentialsFit()
	}
	// One of two concurrent runs may report that another is changing the node.
	m.must("sh", "-c", "slipway certs renew all & slipway certs renew all; wait; true")
	m.credentialsFit()
	const apiIsCut = "OUTPUT -p tcp --dport 6443 -j REJECT --reject-with tcp-reset"
	m.must(strings.Fields("iptables -I " + apiIsCut)...)
	if out := m.must("sh", "-c", "slipway certs renew all 2>&1"); !strings.Contains(out, "[WARNING]") {
		m.Errorf("the API is not down: %s", out)
	}
	m.credentialsFit()
}

// keepsWhatIsPlanted plants links to root's files where etcd's user could, and writes etcd's static Pod again: once with the same
// data directory, and once with one that must first be given to etcd's user.
func (m machine) keepsWhatIsPlanted() {
	m.Helper()
	const secret = "/var/lib/etcd/secret"
	m.must("mkdir", "-p", secret)
	m.write(secret+"/file", "of root")
	m.must("ln", "-s", secret, rootlessDataDir+"/soft")
	m.must("ln", secret+"/file", rootlessDataDir+"/hard")
	again := []string{"slipway", "init", "phase", "etcd", "local", "--config", "/root/slipway.yaml"}
	m.must(again...)
	m.must("chown", "root:root", rootlessDataDir)
	if out, err := m.try(again...); err == nil || !strings.Contains(out, rootlessDataDir+"/hard") {
		m.Errorf("a hard link to a root file is not refused: %v\n%s", err, out)
	}
	if got := m.must("stat", "-c", "%U", secret, secret+"/file"); got != "root\nroot\n" {
		m.Errorf("root's files were given away: %q", got)
	}
	m.must("rm", rootlessDataDir+"/hard")
	m.must(again...)
	if got := m.must("stat", "-c", "%U", rootlessDataDir, rootlessDataDir+"/member", secret); got != "kubeadm-etcd\nkubeadm-etcd\nroot\n" {
		m.Errorf("owners of the data directory, of its contents and of a link target: %q", got)
	}
}

// credentialsFit checks that each certificate matches its key, and that each component can read its own files.
func (m machine) credentialsFit() {
	m.Helper()
	const pki = "/etc/kubernetes/pki/"
	for _, name := range []string{"apiserver", "apiserver-etcd-client", "apiserver-kubelet-client", "front-proxy-client",
		"etcd/server", "etcd/peer", "etcd/healthcheck-client"} {
		cert, key := m.must("cat", pki+name+".crt"), m.must("cat", pki+name+".key")
		if _, err := tls.X509KeyPair([]byte(cert), []byte(key)); err != nil {
			m.Errorf("%s: %v", name, err)
		}
	}
	for user, files := range rootlessReaders {
		read := []string{"setpriv", "--reuid", user, "--regid", user, "--clear-groups", "cat"}
		if out, err := m.try(append(read, files...)...); err != nil {
			m.Errorf("%s cannot read its files: %v\n%s", user, err, out)
		}
		for _, mode := range strings.Fields(m.must(append([]string{"stat", "-c", "%a"}, files...)...)) {
			if mode != "600" {
				m.Errorf("a file of %s has mode %s", user, mode)
			}
		}
	}
}

// Secrets of a shop that runs on the node. Except for the last few, neither their names nor their looks give them away.
var shopSecrets = map[string]string{
	"/etc/default/kubelet": `# SHOP="one-canary-a
# one-canary-b"
export SHOP_A='two-canary words' # three-canary
SHOP_PATH=four-canary
SHOP_B=a \
five-canary
KUBELET_EXTRA_ARGS="--v=2 --manifest-url-header=X:six-canary seven-canary"
`,
	"/etc/systemd/system/kubelet.service.d/90-shop.conf": `[Service]
Environment=GOMAXPROCS=2 SHOP_C=eight-canary "SHOP_D=nine-canary ten-canary" LANG=C
Environment=TZ=UTC \
# SHOP_F=eleven-canary
  SHOP_E=twelve-canary \
  SHOP_ARGS=thirteen-canary
ExecStartPre=-/bin/sh -c 'SHOP_G=fourteen-canary true'
`,
	"/etc/hosts": `127.0.0.1 localhost
# curl -H 'Cookie: shop="fifteen-canary"' -H "X-Auth-Token: sixteen-canary" https://shop.example.org
# https://seventeen-canary@git.example.org and AKIA` + `EIGHTEENCANARY22 and glpat-` + `nineteen-canary-12345
`,
}

// bundleIsSafe: a support bundle has no secrets by default, and has applications' logs only on request.
func bundleIsSafe(m machine) {
	const logged = "logged-by-the-shop"
	m.runsShop(logged)
	const aside = "/root/before-the-shop.tar"
	kept := []string{"/etc/hosts", "/etc/default/kubelet"}
	m.must(append([]string{"tar", "--create", "--absolute-names", "--file", aside}, kept...)...)
	for path, text := range shopSecrets {
		m.write(path, text)
	}
	text := m.bundle()
	for _, shown := range []string{"KUBELET_EXTRA_ARGS=\"--v=2 ", "GOMAXPROCS=2", "LANG=C", "TZ=UTC", "SHOP_E=[redacted]", "kube-apiserver", "/shop"} {
		if !strings.Contains(text, shown) {
			m.Errorf("the bundle lacks %q", shown)
		}
	}
	if strings.Contains(text, logged) {
		m.Error("the bundle holds the log of an application")
	}
	m.noCanary(text)
	all := m.bundle("--all-namespaces")
	if !strings.Contains(all, logged) {
		m.Error("with --all-namespaces, the log of an application is missing")
	}
	m.noCanary(all)
	m.must("tar", "--extract", "--absolute-names", "--file", aside)
	m.must("rm", "-r", "/etc/systemd/system/kubelet.service.d")
	m.kubectl("delete", "-f", "/root/shop.yaml")
}

func (m machine) noCanary(text string) {
	m.Helper()
	for line := range strings.Lines(text) {
		if strings.Contains(strings.ToLower(line), "canary") {
			m.Errorf("the bundle shows a secret: %s", line)
		}
	}
}

// runsShop runs an application that logs a word and exits.
func (m machine) runsShop(logged string) {
	m.Helper()
	image := m.kubectl("get", "pod", "-n", "kube-system", "kube-scheduler-cp-1", "-o", "jsonpath={.spec.containers[0].image}")
	m.write("/root/shop.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: shop, namespace: default},
spec: {nodeName: cp-1, hostNetwork: true, restartPolicy: Never, automountServiceAccountToken: false,
containers: [{name: shop, image: %q, imagePullPolicy: IfNotPresent, command: [kube-scheduler, --%s]}]}}
`, image, logged))
	m.eventually("the shop to be made", readyLimit, func() error { // its service account must exist first
		out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "apply", "-f", "/root/shop.yaml")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	m.eventually("the shop to have logged", readyLimit, func() error {
		out, _ := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "logs", "shop")
		if !strings.Contains(out, logged) {
			return errors.New(out)
		}
		return nil
	})
}

// bundle returns the text of all files of a support bundle.
func (m machine) bundle(flags ...string) string {
	m.Helper()
	m.must(append([]string{"slipway", "support-bundle", "--file=/root/bundle.tar.gz"}, flags...)...)
	return m.must("tar", "-xzOf", "/root/bundle.tar.gz")
}
