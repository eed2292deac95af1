// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"crypto/tls"
	"strings"
)

// rootlessDataDir is below the lab's mount of /var/lib/etcd, so that a hard
// link can lead out of it.
const rootlessDataDir = "/var/lib/etcd/data"

// rootlessReaders are the users of a rootless control plane, with the renewed
// files that each has to read.
var rootlessReaders = map[string][]string{
	"kubeadm-etcd": {"/etc/kubernetes/pki/etcd/server.key", "/etc/kubernetes/pki/etcd/peer.key"},
	"kubeadm-kas": {"/etc/kubernetes/pki/apiserver.key", "/etc/kubernetes/pki/apiserver-kubelet-client.key",
		"/etc/kubernetes/pki/front-proxy-client.key", "/etc/kubernetes/pki/apiserver-etcd-client.key"},
	"kubeadm-kcm": {"/etc/kubernetes/controller-manager.conf"},
	"kubeadm-ks":  {"/etc/kubernetes/scheduler.conf"},
}

// rootlessKeepsOwners: what another user plants in its directory gives no file
// of root away, and renewed credentials fit and stay readable, with the API
// down as well.
func rootlessKeepsOwners(m machine) {
	m.init(document("", podSubnet+`
encryptionAlgorithm: ECDSA-P256
featureGates: {RootlessControlPlane: true}
etcd: {local: {dataDir: `+rootlessDataDir+`}}`))
	m.keepsWhatIsPlanted()
	for range 5 {
		m.must("slipway", "certs", "renew", "all")
		m.credentialsFit()
	}
	// Of two at a time, one may be told that another run is changing the node.
	m.must("sh", "-c", "slipway certs renew all & slipway certs renew all; wait; true")
	m.credentialsFit()
	const apiIsCut = "OUTPUT -p tcp --dport 6443 -j REJECT --reject-with tcp-reset"
	m.must(strings.Fields("iptables -I " + apiIsCut)...)
	if out := m.must("sh", "-c", "slipway certs renew all 2>&1"); !strings.Contains(out, "cannot read the cluster's configuration") {
		m.Errorf("the API is not down: %s", out)
	}
	m.credentialsFit()
}

// keepsWhatIsPlanted puts links to what is root's where etcd's user could, and
// writes etcd's static Pod again: once as it is, and once with a data directory
// that still has to be given to etcd's user.
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
		m.Errorf("a hard link to a file of root's is not refused: %v\n%s", err, out)
	}
	if got := m.must("stat", "-c", "%U", secret, secret+"/file"); got != "root\nroot\n" {
		m.Errorf("what is root's has been given away: %q", got)
	}
	m.must("rm", rootlessDataDir+"/hard")
	m.must(again...)
	if got := m.must("stat", "-c", "%U", rootlessDataDir, rootlessDataDir+"/member", secret); got != "kubeadm-etcd\nkubeadm-etcd\nroot\n" {
		m.Errorf("the data directory, what is in it, and what a link in it leads to belong to %q", got)
	}
}

// credentialsFit makes sure that each certificate has its key, and each
// component can read its own.
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
