// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestUpgradeHA upgrades kubeadm's cluster of three control planes and a worker: one control plane with kubeadm, the others with
// Slipway, while clients of the other API servers and of the Service write all the time. The hosts have no IPv4 address.
func TestUpgradeHA(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade")
	cp1 := bootOlder(t, podsIPv6)
	cp2, cp3, w := cp1.anotherOlder("cp-2", podsIPv6), cp1.anotherOlder("cp-3", podsIPv6), cp1.anotherOlder("worker-1", podsIPv6)
	planes := []machine{cp1, cp2, cp3}
	all := append(slices.Clone(planes), w)
	for _, m := range all {
		m.hasOnlyIPv6(all)
	}
	cp1.kubeadmCluster(networkingIPv6, planes, w)

	writers := cp1.startWriters("worker-1", planes)
	writers.succeedDuring(cp1, func() { cp1.apply() })
	if err := cp2.node.InstallKubernetes(t.Context(), newestKubernetes); err != nil {
		t.Fatal(err)
	}
	cp2.runs("kubeadm", "upgrade", []string{"node", "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors})
	writers.succeedDuring(cp3, func() { cp3.runs("slipway", "upgrade", []string{"node", littleRoom}) })
	w.runs("slipway", "upgrade", []string{"node"})
	cp1.areUpgraded(planes, w)
}

// kubeadmCluster makes an older cluster with kubeadm. m is the first control plane, and all nodes know its endpoint.
func (m machine) kubeadmCluster(networking string, planes []machine, workers ...machine) {
	m.Helper()
	m.kubeadmInit(networking + "\ncontrolPlaneEndpoint: " + sharedEndpoint + ":6443")
	worker, plane := m.joinCommands()
	for _, w := range workers {
		w.runs("kubeadm", "join", worker)
	}
	for _, p := range planes[1:] {
		p.runs("kubeadm", "join", plane)
	}
	m.hasVoters(planes...)
	for _, other := range append(slices.Clone(planes), workers...) {
		m.ready(other.node.Name())
	}
}

// areUpgraded installs the new kubelets, and checks the running versions.
func (m machine) areUpgraded(planes []machine, workers ...machine) {
	m.Helper()
	var names []string
	for _, other := range append(slices.Clone(planes), workers...) {
		other.installs(newestKubernetes)
		names = append(names, other.node.Name())
	}
	m.hasVoters(planes...)
	m.runsVersion(m.upgradesTo(), names...)
}

// writers are Pods that write to the API all the time.
type writers struct {
	machine          // to ask for their logs
	names   []string // of the Pods; those for API servers are named after their nodes
}

// startWriters starts a writer for each API server, and one for the Service kubernetes. They run on a node.
func (m machine) startWriters(node string, planes []machine) writers {
	m.Helper()
	urls := map[string]string{"service": "https://kubernetes.default.svc.cluster.local"}
	for _, p := range planes {
		address := m.kubectl("get", "node", p.node.Name(), "-o", `jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
		urls[p.node.Name()] = "https://" + net.JoinHostPort(address, "6443")
	}
	manifest := ""
	w := writers{machine: m}
	for name, url := range urls {
		w.names = append(w.names, name)
		manifest += nodes.WriterManifest("writer-"+name, node, url)
	}
	slices.Sort(w.names)
	m.write("/root/writers.yaml", manifest)
	m.create("/root/writers.yaml")
	m.eventually("the writers to write", readyLimit, func() error {
		for _, name := range w.names {
			if out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "logs", "--tail=1", "writer-"+name); err != nil || !strings.HasPrefix(out, "writes ") {
				return fmt.Errorf("writer-%s: %w: %s", name, err, out)
			}
		}
		return nil
	})
	return w
}

// lostInTransfer recognizes a write that etcd has dropped because it arrived in the milliseconds in which one member hands the
// lead to another. etcd's clients can't prevent that, and upgrading all members always involves it.
func lostInTransfer(failure string) bool {
	return strings.Contains(failure, `"etcdserver: request timed out`) || strings.Contains(failure, "raft proposal dropped")
}

// succeedDuring runs an action that takes away a node's API server, and checks that the writers for all other API servers carry
// on meanwhile, and that no write fails.
func (w writers) succeedDuring(away machine, action func()) {
	w.Helper()
	before := map[string]int{}
	w.eventually("all writers to write", readyLimit, func() error {
		for _, name := range w.names {
			log := w.kubectl("logs", "writer-"+name, "--since=3s")
			if strings.Contains(log, " failed after ") || !strings.Contains(log, "writes ") {
				return fmt.Errorf("writer-%s: %s", name, log)
			}
			before[name] = writes(log)
		}
		return nil
	})
	since := time.Now().UTC()
	action()
	took := time.Since(since)
	for _, name := range w.names {
		log := w.logsUntil(name, since, time.Now())
		last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]
		w.Logf("during the upgrade of %s, writer-%s: %s", away.node.Name(), name, last)
		if name == away.node.Name() {
			continue
		}
		if wrote := writes(log) - before[name]; wrote < int(took.Seconds()) { // of 10 per second
			w.Errorf("writer-%s wrote only %d times in %s", name, wrote, took)
		}
		for line := range strings.Lines(log) {
			switch {
			case !strings.Contains(line, " failed after "):
			case lostInTransfer(line):
				w.Logf("writer-%s, while another member of etcd became the leader: %s", name, line)
			default:
				w.Errorf("writer-%s: %s", name, line)
			}
		}
	}
}

// logsUntil returns a writer's log since an action began, once the writer has reported after the action's end.
func (w writers) logsUntil(name string, began, ended time.Time) string {
	w.Helper()
	since := func(t time.Time) string { return "--since-time=" + t.UTC().Format(time.RFC3339) }
	w.eventually("the last writes of writer-"+name, readyLimit, func() error {
		out, err := w.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "logs", "writer-"+name, since(ended.Add(time.Second)))
		if err != nil || !strings.Contains(out, "writes ") {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	return w.kubectl("logs", "writer-"+name, since(began))
}

// writes returns the number of writes in a writer's last report.
func writes(log string) (n int) {
	if at := strings.LastIndex(log, "writes "); at >= 0 {
		_, _ = fmt.Sscanf(log[at:], "writes %d", &n)
	}
	return n
}

// drains upgrades worker w with --drain. If its disruption budget allows nothing, a Pod there stays until the deadline; once the
// budget is gone, the same command finishes, and another Pod takes its place.
func (m machine) drains(w machine) {
	m.Helper()
	name := w.node.Name()
	m.write("/root/guarded.yaml", strings.NewReplacer("NODE", name, "IMAGE", nodes.ProbeImage).Replace(guardedManifest))
	m.kubectl("apply", "-f", "/root/guarded.yaml")
	m.kubectl("wait", "--for=condition=Available", "deployment/guarded", "--timeout="+readyLimit.String())
	m.prints(name, "get", "pods", "-l", "app=guarded", "-o", "jsonpath={.items[*].spec.nodeName}")
	before := m.podsOf("guarded")

	out, err := w.try("slipway", "upgrade", "node", "--drain", "--drain-timeout=20s")
	if err == nil || !strings.Contains(out, "20s") || !strings.Contains(out, "default/guarded-") {
		m.Errorf("a worker is drained although a disruption budget allows nothing: %v\n%s", err, out)
	}
	m.prints("true", "get", "node", name, "-o", "jsonpath={.spec.unschedulable}")

	m.kubectl("delete", "poddisruptionbudget", "guarded")
	w.runs("slipway", "upgrade", []string{"node", "--drain"})
	m.prints("", "get", "node", name, "-o", "jsonpath={.spec.unschedulable}")
	m.kubectl("wait", "--for=condition=Available", "deployment/guarded", "--timeout="+readyLimit.String())
	if now := m.podsOf("guarded"); slices.Contains(now, before[0]) { // its successor may be there again: the node was uncordoned
		m.Errorf("the evicted Pod %v is still there: %v", before, now)
	}
	m.kubectl("delete", "deployment", "guarded")
}

// guardedManifest has a Pod that starts on NODE and is kept there by a disruption budget.
const guardedManifest = `apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: default}
spec:
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      affinity:
        nodeAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            preference: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [NODE]}]}
      terminationGracePeriodSeconds: 0
      tolerations: [{key: node-role.kubernetes.io/control-plane, operator: Exists}]
      containers:
      - {name: server, image: IMAGE, imagePullPolicy: Never, args: [serve, ":8080"]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: default}
spec: {minAvailable: 1, selector: {matchLabels: {app: guarded}}}
`
