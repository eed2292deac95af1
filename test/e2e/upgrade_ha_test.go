// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// TestUpgradeHA upgrades three control planes and a worker that kubeadm has made: the first and the last control plane by
// Slipway, the second by kubeadm. While Slipway works, clients of the other API servers and of the Service write.
func TestUpgradeHA(t *testing.T) {
	cp1 := bootOlder(t)
	cp2, cp3, w := cp1.anotherOlder("cp-2"), cp1.anotherOlder("cp-3"), cp1.anotherOlder("worker-1")
	planes, all := []machine{cp1, cp2, cp3}, []machine{cp1, cp2, cp3, w}
	for _, m := range all {
		m.knowsEndpoint(planes)
	}
	cp1.kubeadmInit(podSubnet + "\ncontrolPlaneEndpoint: " + sharedEndpoint + ":6443")
	worker, plane := cp1.joinCommands()
	w.runs("kubeadm", "join", worker)
	cp2.runs("kubeadm", "join", plane)
	cp3.runs("kubeadm", "join", plane)
	cp1.hasVoters(planes...)
	for _, m := range all {
		cp1.ready(m.node.Name())
	}

	writers := cp1.startWriters("worker-1", planes)
	version := cp1.upgradesTo()
	writers.succeedDuring(cp1, func() { cp1.apply() })
	if err := cp2.node.InstallKubernetes(newestKubernetes); err != nil {
		t.Fatal(err)
	}
	cp2.runs("kubeadm", "upgrade", []string{"node", "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors})
	writers.succeedDuring(cp3, func() { cp3.runs("slipway", "upgrade", []string{"node"}) })
	w.runs("slipway", "upgrade", []string{"node"})
	for _, m := range all {
		m.installs(newestKubernetes)
	}
	cp1.hasVoters(planes...)
	cp1.runsVersion(version, "cp-1", "cp-2", "cp-3", "worker-1")
}

// writers are Pods that write to the API all the time.
type writers struct {
	machine          // to ask for their logs
	names   []string // of the Pods; those of API servers are named after their nodes
}

// startWriters starts one writer for each API server, and one that uses the Service kubernetes. They run on a node.
func (m machine) startWriters(node string, planes []machine) writers {
	m.Helper()
	urls := map[string]string{"service": "https://kubernetes.default.svc.cluster.local"}
	for _, p := range planes {
		urls[p.node.Name()] = "https://" + p.node.IP() + ":6443"
	}
	manifest := ""
	w := writers{machine: m}
	for name, url := range urls {
		w.names = append(w.names, name)
		manifest += nodes.WriterManifest("writer-"+name, node, url)
	}
	slices.Sort(w.names)
	m.write("/root/writers.yaml", manifest)
	m.kubectl("apply", "-f", "/root/writers.yaml")
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

// lostInTransfer recognizes a write that etcd has dropped because it arrived in the milliseconds in which one member hands
// the lead over to another. Its clients cannot prevent that, and there is no upgrade of all members without it.
func lostInTransfer(failure string) bool {
	return strings.Contains(failure, `"etcdserver: request timed out`) || strings.Contains(failure, "raft proposal dropped")
}

// succeedDuring runs something that takes away the API server of a node, and checks that no write failed meanwhile, other
// than at that API server.
func (w writers) succeedDuring(away machine, action func()) {
	w.Helper()
	since := time.Now().UTC()
	action()
	time.Sleep(2 * time.Second) // the last writes are in the logs
	for _, name := range w.names {
		log := w.kubectl("logs", "writer-"+name, "--since-time="+since.Format(time.RFC3339))
		last := log[strings.LastIndex(strings.TrimSpace(log), "\n")+1:]
		w.Logf("during the upgrade of %s, writer-%s: %s", away.node.Name(), name, last)
		for line := range strings.Lines(log) {
			switch {
			case !strings.Contains(line, " failed after ") || name == away.node.Name():
			case lostInTransfer(line):
				w.Logf("writer-%s, while another member of etcd became the leader: %s", name, line)
			default:
				w.Errorf("writer-%s: %s", name, line)
			}
		}
	}
}
