// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// TestUpgradeChain upgrades a cluster made by kubeadm 1.35 over two minor releases, following the plan: the control plane to 1.36
// and then to 1.37, the worker at the end.
func TestUpgradeChain(t *testing.T) {
	if os.Getenv("SLIPWAY_E2E_CHAIN") == "" {
		t.Skip("the lab builds Kubernetes 1.35 in nine minutes: set SLIPWAY_E2E_CHAIN=1")
	}
	downAfter(t, openLab(t, labName(t), ""))
	cp := boots(t, nodes.NodeSpec{Name: "cp-1"}, "1.35")
	w := boots(t, nodes.NodeSpec{Name: "worker-1"}, "1.35")
	for _, m := range []machine{cp, w} {
		m.hasImagesOfKubeadm()
	}
	cp.kubeadmInit(podSubnet)
	worker, _ := cp.joinCommands()
	w.runs("kubeadm", "join", worker)
	cp.ready("worker-1")
	cp.plansChain()

	for _, minor := range []string{olderKubernetes, newestKubernetes} {
		writers := cp.startWriters("worker-1", []machine{cp})
		version := cp.node.VersionOf(minor)
		since := time.Now().UTC()
		cp.runs("slipway", "upgrade", []string{"apply", version, "--yes", littleRoom})
		if t.Failed() {
			return
		}
		for _, name := range writers.names {
			lines := strings.Split(strings.TrimSpace(cp.kubectl("logs", "writer-"+name, "--since-time="+since.Format(time.RFC3339))), "\n")
			t.Logf("writer-%s: %s", name, lines[len(lines)-1])
		}
		cp.installs(minor)
		cp.healthy(everything)
		cp.kubectl("delete", "-f", "/root/writers.yaml")
	}
	w.runs("slipway", "upgrade", []string{"node"})
	w.installs(newestKubernetes)
	cp.runsVersion(cp.upgradesTo(), "cp-1", "worker-1")
	cp.healthy(everything)
	before := cp.containers()
	cp.apply()
	if after := cp.containers(); after != before {
		t.Errorf("a second upgrade restarted something, before:\n%s\nafter:\n%s", before, after)
	}
}

// hasImagesOfKubeadm gives the lab's images the tags that this kubeadm asks for: the lab has no other patch release.
func (m machine) hasImagesOfKubeadm() {
	m.Helper()
	present := strings.Fields(m.must("ctr", "--namespace=k8s.io", "images", "list", "--quiet"))
	for _, image := range strings.Fields(m.must("kubeadm", "config", "images", "list", "--kubernetes-version="+m.node.VersionOf("1.35"))) {
		if slices.Contains(present, image) {
			continue
		}
		repository, _, _ := strings.Cut(image, ":")
		same := slices.IndexFunc(present, func(other string) bool { return strings.HasPrefix(other, repository+":") })
		if same < 0 {
			m.Fatalf("the lab has nothing like %s", image)
		}
		m.Logf("%s stands for %s", present[same], image)
		m.must("ctr", "--namespace=k8s.io", "images", "tag", present[same], image)
	}
}

func (m machine) plansChain() {
	m.Helper()
	plan := m.must("slipway", "upgrade", "plan", m.upgradesTo())
	rest := plan
	for _, command := range []string{"slipway upgrade apply " + m.node.VersionOf(olderKubernetes), "slipway upgrade apply " + m.upgradesTo(), "slipway upgrade node"} {
		_, after, found := strings.Cut(rest, command)
		if !found {
			m.Errorf("the plan lacks %q in its place:\n%s", command, plan)
		}
		rest = after
	}
}
