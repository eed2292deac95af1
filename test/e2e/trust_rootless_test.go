// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/tier"
)

// rootlessDataDir is below the lab's mount of /var/lib/etcd, so that a hard link can point outside of it.
const rootlessDataDir = "/var/lib/etcd/data"

// rootlessReaders are the users of a rootless control plane, with the renewed files that each must read.
var rootlessReaders = map[string][]string{
	"kubeadm-etcd": {"/etc/kubernetes/pki/etcd/server.key", "/etc/kubernetes/pki/etcd/peer.key"},
	"kubeadm-kas": {"/etc/kubernetes/pki/apiserver.key", "/etc/kubernetes/pki/apiserver-kubelet-client.key",
		"/etc/kubernetes/pki/front-proxy-client.key", "/etc/kubernetes/pki/apiserver-etcd-client.key"},
	"kubeadm-kcm": {"/etc/kubernetes/controller-manager.conf"},
	"kubeadm-ks":  {"/etc/kubernetes/scheduler.conf"},
}

// TestRootless: files that another user plants in its directory do not give away files of root. Renewed
// credentials match and stay readable, even while the API is down.
func TestRootless(t *testing.T) {
	tier.OnlyFull(t, "nothing, as the feature is an alpha")
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
	// Of two at a time, one may report that another run is changing the node.
	m.must("sh", "-c", "slipway certs renew all & slipway certs renew all; wait; true")
	m.credentialsFit()
	const apiIsCut = "OUTPUT -p tcp --dport 6443 -j REJECT --reject-with tcp-reset"
	m.must(strings.Fields("iptables -I " + apiIsCut)...)
	if out := m.must("sh", "-c", "slipway certs renew all 2>&1"); !strings.Contains(out, "[WARNING]") {
		m.Errorf("the API is not down: %s", out)
	}
	m.credentialsFit()
}

// keepsWhatIsPlanted plants links to root's files where etcd's user could, and writes etcd's static Pod again: once
// with the same data directory, and once with one that must first be given to etcd's user.
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
