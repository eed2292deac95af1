// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

// externalPKI is where a control plane keeps the client certificate for an external etcd, apart from the cluster's own
// certificates.
const externalPKI = "/etc/external-etcd"

// TestInitExternalEtcd creates a cluster of two control planes whose etcd runs on the worker. The second control plane brings no
// files: it gets the etcd client certificate the same way as the cluster's own keys. When it leaves, it leaves nothing behind and
// removes nothing that belongs to others. It also serves without the first.
func TestInitExternalEtcd(t *testing.T) {
	tier.OnlyFull(t, "TestNode")
	cp1 := boot(t)
	cp2, w1 := cp1.another("cp-2"), cp1.another("worker-1")
	planes := []machine{cp1, cp2}
	for _, m := range []machine{cp1, cp2, w1} {
		m.knowsEndpoint(planes)
	}
	w1.servesEtcd()
	for _, file := range []string{"ca.crt", "client.crt", "client.key"} {
		cp1.write(path.Join(externalPKI, file), w1.must("cat", path.Join(externalPKI, file)))
	}
	before := cp2.host()
	cp1.init(document("", fmt.Sprintf(`%s
controlPlaneEndpoint: %s:6443
etcd:
  external:
    endpoints: [https://%s:12379]
    caFile: %[4]s/ca.crt
    certFile: %[4]s/client.crt
    keyFile: %[4]s/client.key`, podSubnet, sharedEndpoint, w1.node.IP(), externalPKI)))
	want := everything
	want.pods = []string{"coredns-", "kube-apiserver-", "kube-controller-manager-", "kube-proxy-", "kube-scheduler-"}
	cp1.healthy(want)
	if out, err := cp1.try("ls", "/etc/kubernetes/pki/etcd"); err == nil {
		t.Errorf("found certificates of a local etcd: %s", out)
	}
	cp1.leavesExternalEtcd()

	worker, plane := cp1.joinCommands()
	sideBySide(func() { cp2.runs("slipway", "join", plane) }, func() { w1.runs("slipway", "join", worker) })
	cp1.ready("cp-2")
	cp1.ready("worker-1")
	cp2.isControlPlaneLike(cp1)
	cp2.secondJoinChangesNothing(plane)
	for _, m := range planes {
		m.kubectl("--server=https://"+m.node.IP()+":6443", "create", "configmap", "by-"+m.node.Name())
	}

	data := w1.storedConfigMaps()
	fact.In(t, cp2.reset(), "[WARNING]", "https://"+w1.node.IP()+":12379")
	if left := w1.storedConfigMaps(); left != data {
		t.Errorf("etcd held\n%s\nafter a control plane left it holds\n%s", data, left)
	}
	cp2.isAs(before, "/var/lib/cni")
	cp1.kubectl("delete", "node", "cp-2")
	cp2.findsEtcdShut(plane)
	cp2.runs("slipway", "join", plane)
	cp1.ready("cp-2")
	cp1.isLost(cp2)
}

// leavesExternalEtcd: `slipway etcd` shows its member, which has etcd's default name, and refuses everything else.
func (m machine) leavesExternalEtcd() {
	m.Helper()
	for _, show := range []string{"status", "member list"} {
		fact.In(m, m.must(append([]string{"slipway", "etcd"}, strings.Fields(show)...)...), "default")
	}
	for _, change := range []string{"snapshot save", "restore /root/snapshot.db --yes", "recover --yes", "defrag --all", "member remove other --yes"} {
		if out, err := m.try(append([]string{"slipway", "etcd"}, strings.Fields(change)...)...); err == nil || !strings.Contains(out, "external") {
			m.Errorf("etcd %s: %v\n%s", change, err, out)
		}
	}
}

// findsEtcdShut joins while a firewall keeps m from etcd. The join reports that, and the same command finishes later.
func (m machine) findsEtcdShut(plane []string) {
	m.Helper()
	rule := []string{"OUTPUT", "-p", "tcp", "--dport", "12379", "-j", "REJECT", "--reject-with", "tcp-reset"}
	m.must(append([]string{"iptables", "-I"}, rule...)...)
	started := time.Now()
	out, err := m.try(append([]string{"slipway", "join"}, plane...)...)
	if took := time.Since(started); err == nil || !strings.Contains(out, "[etcd-unreachable] kube-apiserver") || took > time.Minute {
		m.Errorf("without etcd, join ended after %s: %v\n%s", took, err, out)
	}
	m.must(append([]string{"iptables", "-D"}, rule...)...)
}

func (m machine) servesEtcd() {
	m.Helper()
	const pki = externalPKI + "/"
	for _, name := range []string{"etcd-ca", "etcd-server", "apiserver-etcd-client"} {
		m.must("slipway", "init", "phase", "certs", name, "--cert-dir", "/root/etcd-pki")
	}
	m.must("mkdir", pki)
	for from, to := range map[string]string{
		"etcd/ca.crt": "ca.crt", "etcd/server.crt": "server.crt", "etcd/server.key": "server.key",
		"apiserver-etcd-client.crt": "client.crt", "apiserver-etcd-client.key": "client.key",
	} {
		m.must("cp", "-p", "/root/etcd-pki/"+from, pki+to)
	}
	url := "https://" + m.node.IP() + ":12379"
	m.must("systemd-run", "--unit=external-etcd", "etcd", "--data-dir=/var/lib/external-etcd",
		"--listen-client-urls="+url, "--advertise-client-urls="+url, "--listen-peer-urls=http://127.0.0.1:12380",
		"--client-cert-auth=true", "--trusted-ca-file="+pki+"ca.crt", "--cert-file="+pki+"server.crt", "--key-file="+pki+"server.key")
	m.eventually("etcd to answer", readyLimit, func() error {
		if out, err := m.externalEtcdctl("endpoint", "health"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (m machine) externalEtcdctl(args ...string) (string, error) {
	const pki = externalPKI + "/"
	return m.try(append([]string{"etcdctl", "--endpoints=https://" + m.node.IP() + ":12379", "--cacert=" + pki + "ca.crt",
		"--cert=" + pki + "client.crt", "--key=" + pki + "client.key"}, args...)...)
}

// storedConfigMaps lists etcd's keys of ConfigMaps, which only tests add.
func (m machine) storedConfigMaps() string {
	m.Helper()
	out, err := m.externalEtcdctl("get", "/registry/configmaps/", "--prefix", "--keys-only")
	if err != nil || !strings.Contains(out, "/default/by-cp-2") {
		m.Errorf("etcd holds: %v\n%s", err, out)
	}
	return out
}
