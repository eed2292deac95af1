// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/joiners"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestWorkers joins workers to one control plane, with slipway and kubeadm, and takes them through a worker's later life: a
// second join, a deleted Node, a restored etcd, a reset, an expired certificate, a cluster changed by others.
func TestWorkers(t *testing.T) {
	m := boot(t)
	config := document("", podSubnet)
	m.runsResolved()
	args := m.initForJoin(config)
	w1, w2 := m.another("worker-1"), m.another("worker-2")
	before := w1.host()
	if !m.row("join", func(m machine) { m.joinsWorkers(w1, w2, args) }) {
		return
	}
	m.row("reconfigure", func(m machine) { m.reconfiguresWorker(w1) })
	m.row("etcd-restore", func(m machine) { m.restoresEtcd(machine{m.T, w1.node}, machine{m.T, w2.node}) })
	m.row("reset", func(m machine) { m.resetsWorker(machine{m.T, w1.node}, before) })
	m.row("host-facts", func(m machine) {
		m.keepsHostFacts()
		m.correctsHostFacts(machine{m.T, w1.node}, args)
	})
	m.row("discovery-file", func(m machine) { m.joinsByFile(machine{m.T, w1.node}, args) })
	m.row("expired", func(m machine) { m.saysJoinedWhenItHas(machine{m.T, w1.node}, args) })
	m.row("old-cluster", func(m machine) { m.joinsOldCluster(machine{m.T, w2.node}, args) })
}

// joinsWorkers joins one worker with each tool. Their files must be the same.
func (m machine) joinsWorkers(w1, w2 machine, args []string) {
	m.Helper()
	w1.T, w2.T = m.T, m.T
	w1.refusesWrongPin(args)
	w1.planWritesNothing(args)
	m.join(w1, append([]string{"slipway", "join"}, args...)...)
	w2.hasKubeadm()
	m.join(w2, append([]string{"kubeadm", "join"}, args...)...)
	for _, w := range []machine{m, w1, w2} {
		m.ready(w.node.Name())
	}
	w1.usesRotatedKubelet()
	w1.sameFilesAs(w2)
	w1.secondJoinChangesNothing(args)
	w1.nameOfAnotherIsRefused(args)
	m.comesBack(w1, args)
}

// usesRotatedKubelet checks that the join's credentials are gone, and that the kubelet rotates its own.
func (m machine) usesRotatedKubelet() {
	m.Helper()
	m.rotatableKubelet()
	if out, err := m.try("test", "-e", "/etc/kubernetes/bootstrap-kubelet.conf"); err == nil {
		m.Errorf("%s: the join credentials still exist: %s", m.node.Name(), out)
	}
}

// resetsWorker takes a worker out of the cluster: nothing stays on its host, and nothing of anyone else's is deleted.
func (m machine) resetsWorker(w machine, before []string) {
	m.Helper()
	w.eventually("a Pod on the worker", readyLimit, func() error {
		if out := w.must("ctr", "-n", "k8s.io", "tasks", "ls", "-q"); strings.TrimSpace(out) == "" {
			return errors.New("nothing runs")
		}
		return nil
	})
	precious := w.mountsPrecious(m)
	if out := w.reset(); !strings.Contains(out, "kubectl delete node worker-1") || !strings.Contains(out, "/var/lib/kubelet/mine") {
		w.Errorf("reset says:\n%s", out)
	}
	for _, path := range precious {
		w.must("test", "-s", path)
	}
	w.must("umount", "/var/lib/kubelet/mine", "/etc/kubernetes/pki/mine")
	w.reset()
	w.hasNoPods()
	w.must("rm", "-r", "/srv/precious")
	w.isAs(before, "/var/lib/cni")
	m.kubectl("delete", "node", w.node.Name())
}

// joinsByFile joins a worker that finds its cluster with a discovery file and reads its token from a file.
func (m machine) joinsByFile(w machine, args []string) {
	m.Helper()
	w.write("/root/discovery.conf", m.kubectl("-n", "kube-public", "get", "configmap", "cluster-info", "-o", "jsonpath={.data.kubeconfig}"))
	w.write("/root/token", args[slices.Index(args, "--token")+1]+"\n")
	m.join(w, "slipway", "join", "--discovery-file=/root/discovery.conf", "--token-file=/root/token",
		"--ignore-preflight-errors="+nodes.IgnorePreflightErrors)
	m.ready(w.node.Name())
	w.usesRotatedKubelet()
}

// TestJoinMany lets 20 workers discover the cluster and bootstrap their TLS at the same time, against one control plane.
func TestJoinMany(t *testing.T) {
	tier.OnlyFull(t, "TestWorkers")
	m := boot(t)
	args := strings.Fields(strings.ReplaceAll(m.init(document("", podSubnet)), "\\\n", " "))
	after := func(flag string) string { return args[slices.Index(args, flag)+1] }
	const many = 20
	report, err := joiners.Run(t.Context(), m.node, joiners.Order{
		Count: many, Endpoint: after("join"), Token: after("--token"), Pin: after("--discovery-token-ca-cert-hash"),
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, why := range report.Failed {
		t.Error(why)
	}
	if len(report.Each) != many {
		t.Errorf("%d of %d joined", len(report.Each), many)
	}
	t.Logf("%d joined within %s; the API server took %s of processor time and answered %d requests",
		len(report.Each), report.Wall, report.CPU, report.Requests)
	signed := m.kubectl("get", "csr", "-o", `jsonpath={range .items[?(@.status.certificate)]}{.spec.username}{"\n"}{end}`)
	if got := strings.Count(signed, "system:bootstrap:"); got < many {
		t.Errorf("%d requests were signed, want %d", got, many)
	}
}
