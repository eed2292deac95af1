// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// row runs a part of a test that shares its cluster with others, and reports whether it passed.
func (m machine) row(name string, part func(m machine)) bool {
	return m.Run(name, func(t *testing.T) { part(machine{t, m.node}) })
}

// TestNode takes one machine through the life of a control plane: checked, planned, initialized like the reference, used,
// administered, reset, and once more with the defaults. Each row leaves the cluster as the next expects it.
func TestNode(t *testing.T) {
	m := boot(t)
	m.row("flags-env", readsFlagsEnv)
	m.hasKubeadm()  // for rows that compare with it
	m.hasFullDisk() // the reference has no settings for it
	config := strings.Replace(document("", podSubnet+"\ncontrolPlaneEndpoint: 192.168.99.11:6443"), fullDisk, "", 1)
	before := m.host()

	if !m.row("init", func(m machine) { m.initializesAsReference(config) }) {
		return
	}
	m.row("token", managesTokens)
	m.row("kubeconfig", followsUserKubeconfig)
	m.row("cli", answersAsKubeadm)
	m.row("playbooks", answersPlaybooks)
	m.row("network-file", asksOfPodNetwork)
	m.row("support-bundle", bundleIsSafe)
	m.row("certs", func(m machine) {
		m.usesUserKubeconfig()
		m.renewsOneByName()
		m.must("slipway", "certs", "renew", "all", "--restart")
		m.healthy(everything)
	})
	m.row("etcd-snapshot", func(m machine) { m.savesEtcd() })
	m.row("replaced-ca", func(m machine) { m.replacesCA() })
	if tier.Full() {
		m.row("two-cas", func(m machine) { m.usesTwoCAs() })
	}
	m.row("second-init", func(m machine) {
		m.isAdministrated()
		m.secondInitChangesNothing(config)
		m.prints("", "get", "node", "cp-1", "-o", `jsonpath={.spec.taints[?(@.key=="node-role.kubernetes.io/control-plane")]}`)
		m.passesPreflight(config)
	})
	m.row("reconfigure", func(m machine) { m.isReconfigured() })
	if tier.Full() {
		m.row("reconfigure-try", func(m machine) { m.triesChange() })
		m.row("reconfigure-addon", func(m machine) { m.putsAddOnBack() })
	}
	m.row("reset", func(m machine) {
		m.hasNetwork()
		m.changesNothingUnless("y")
		m.resetPlanIsTrue()
		m.killedWhileResetting()
		m.isAs(before, "/var/lib/cni")
		m.hasNoPods()
	})
	m.row("defaults", func(m machine) {
		m.printsJoinCommand(m.init(document("", podSubnet)))
		m.hasNetwork()
		m.plantForeignNetwork()
		m.reset("--network")
		m.hasForeignNetworkOnly()
		m.isAs(before)
	})
	if tier.Full() {
		m.row("reset-dead", func(m machine) {
			m.init(document("", podSubnet))
			m.resetsThoughAllIsDead()
			m.reset()
			m.isAs(before, "/var/lib/cni")
			m.hasNoPods()
		})
	}
	m.reset() // after a run of some rows alone
	if out := m.reset(); !strings.Contains(out, "Nothing to do") {
		t.Errorf("reset of a host after it left the cluster:\n%s", out)
	}
	m.row("no-systemd", worksWithoutSystemd)
}

// isReconfigured changes flags of the API server and a setting of the kubelet. A flag that doesn't exist is put back by the run, and a
// run that's killed on trial is put back by systemd.
func (m machine) isReconfigured() {
	m.Helper()
	change := func(flag string) []string {
		m.write("/root/change.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"+
			"apiServer: {extraArgs: [{name: "+flag+", value: \"false\"}]}\n---\n"+
			"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 99\n")
		return []string{"slipway", "reconfigure", "--config", "/root/change.yaml"}
	}
	const manifest, units = "/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/systemd/system/slipway-watch.service"
	before := m.must("cat", manifest, "/var/lib/kubelet/config.yaml")
	isBack := func() error {
		if _, err := m.try("ls", units); err == nil {
			return errors.New(units + " is still there")
		}
		if now := m.must("cat", manifest, "/var/lib/kubelet/config.yaml"); now != before {
			return errors.New("the files have changed:\n" + now)
		}
		return nil
	}

	watch := &stopwatch{text: "putting this node back"}
	if err := m.node.Exec(m.Context(), nodes.Cmd{Args: change("no-such-flag"), Stdout: watch, Stderr: watch}); err == nil || watch.at.IsZero() {
		m.Fatalf("a flag that does not exist counts: %v\n%s", err, &watch.said)
	}
	m.Logf("put back in %.1fs", time.Since(watch.at).Seconds())
	fact.In(m, watch.said.String(), "no-such-flag")
	if err := isBack(); err != nil {
		m.Fatal(err)
	}

	command := change("profiling")
	if !m.killedAt(instant{"On trial", 0}, nothingMore, command...) {
		m.Fatal("it was not killed on trial")
	}
	m.eventually("the killed change to be put back", readyLimit, isBack)
	m.healthy(everything)
	fact.NotIn(m, m.storedText("kubeadm-config", "ClusterConfiguration"), "profiling", "no-such-flag")

	started := time.Now()
	m.must(command...)
	m.Logf("reconfigured in %.1fs", time.Since(started).Seconds())
	m.healthy(everything)
	fact.In(m, m.must("cat", manifest), "--profiling=false")
	fact.In(m, m.storedText("kubelet-config", "kubelet"), "maxPods: 99")
	m.eventually("the Node to take 99 Pods", readyLimit, func() error {
		if got := m.kubectl("get", "node", "cp-1", "-o", "jsonpath={.status.capacity.pods}"); got != "99" {
			return errors.New("it takes " + got)
		}
		return nil
	})
	files := m.everyFile()
	fact.In(m, m.must("env", "EDITOR=sed -i /^maxPods/d", "slipway", "reconfigure", "--edit", "--diff"), "-maxPods: 99")
	m.must(command...)
	if now := m.everyFile(); now != files {
		m.Errorf("the second time, files have changed (-before +after):\n%s", cmp.Diff(files, now))
	}
	m.must("rm", "-r", "/etc/kubernetes/tmp") // resets leave it
}

// stopwatch keeps what is said, and notes when a text comes.
type stopwatch struct {
	text string
	said bytes.Buffer
	at   time.Time
}

func (w *stopwatch) Write(p []byte) (int, error) {
	n, err := w.said.Write(p)
	if w.at.IsZero() && strings.Contains(w.said.String(), w.text) {
		w.at = time.Now()
	}
	return n, err
}

// everyFile lists the node's configuration with the times of its last changes.
func (m machine) everyFile() string {
	m.Helper()
	return m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "-type", "f", "-printf", "%T@ %p\n")
}

// initializesAsReference checks a new node, plans, and initializes it: the plan must be true, and the files and objects the
// reference's.
func (m machine) initializesAsReference(config string) {
	m.Helper()
	m.passesPreflight(config)
	planned := m.plan(config, "--upload-certs")
	m.init(config, "--upload-certs")
	m.healthy(everything)
	m.filesHaveReferenceModes()
	m.keepsPlan(planned)
	m.objectsEqualReference()
	m.accountsEqualReference()
}

// passesPreflight runs all checks of init on the node, and allows only findings that are true of a lab node: it shares the host's
// kernel, with cgroup v1, has routes to other nodes' Pods, and other tests use the disk at the same time.
func (m machine) passesPreflight(config string) {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	out := m.must("slipway", "preflight", "--config", "/root/slipway.yaml", "-o", "json")
	var found struct {
		Seconds float64
		Checks  []struct {
			Name, Result, Message string
			Seconds               float64
		}
	}
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		m.Fatalf("preflight: %v:\n%s", err, out)
	}
	slowest := found.Checks[0]
	for _, c := range found.Checks {
		if c.Seconds > slowest.Seconds {
			slowest = c
		}
		if c.Result != "ok" {
			m.Logf("preflight: %s %s: %s", c.Result, c.Name, c.Message)
		}
		shared := []string{"SystemVerification", "PodSubnetRoutes", "EtcdDisk", "DiskSpace-runtime", "DiskSpace-kubelet"}
		if c.Result != "ok" && !slices.Contains(shared, c.Name) {
			m.Errorf("preflight of a suitable node: %s %s: %s", c.Result, c.Name, c.Message)
		}
	}
	m.Logf("preflight: %d checks in %.3f s, the slowest %s with %.3f s", len(found.Checks), found.Seconds, slowest.Name, slowest.Seconds)
}
