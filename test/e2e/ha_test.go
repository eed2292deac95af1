// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// sharedEndpoint resolves to every control plane: each node's hosts file has all their addresses, and clients try the next if one
// is down.
const sharedEndpoint = "api.slipway.test"

// TestHA creates a cluster of three control planes, two of which join at the same time, and a worker. Operators' edits stay. Any
// control plane may be lost; a rebuilt machine comes back as a new member of etcd; a control plane that leaves joins again; one whose
// host is lost is removed by another; the last one isn't reset.
func TestHA(t *testing.T) {
	cp1 := boot(t)
	cp2, cp3, w := cp1.another("cp-2"), cp1.another("cp-3"), cp1.another("worker-1")
	planes, all := []machine{cp1, cp2, cp3}, []machine{cp1, cp2, cp3, w}
	for _, m := range all {
		m.knowsEndpoint(planes)
	}
	var failed bool // a run of other rows alone has nothing to correct
	cp1.row("first-attempt", func(m machine) { failed = true; m.failsAtFirst() })
	cp1.corrects(failed, document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--upload-certs")
	cp1.keepsBackupAlone()

	worker, plane := cp1.joinCommands()
	sideBySide(
		func() {
			if failed {
				cp2.failsToJoin(cp1, plane)
			}
			cp2.runs("slipway", "join", plane)
		},
		func() { cp3.runs("slipway", "join", plane) },
		func() { w.runs("slipway", "join", worker) },
	)
	for _, m := range all {
		cp1.ready(m.node.Name())
	}
	cp1.hasVoters(planes...)
	cp2.isControlPlaneLike(cp1)
	cp2.secondJoinChangesNothing(plane)
	if t.Failed() {
		return
	}
	cp1.row("turns", func(m machine) { m.renewsInTurn(cp2) })
	if tier.Full() {
		cp1.row("reconfigure", func(m machine) { m.reconfiguresPlanes(cp2) })
	}
	cp1.row("edits", func(m machine) { m.keepsEdits(cp2, w, plane, worker) })
	cp1.row("restore", func(m machine) { m.refusesRestoreBeside(cp2, cp3) })
	for _, i := range tier.Sample(t, 1, len(planes)) {
		planes[i].row("is-lost", func(m machine) { m.canBeLost(planes[(i+1)%3]) })
	}
	cp1.row("rebuilt", func(m machine) { planes[2] = m.replacesLostVoter(planes) })
	for _, i := range tier.Sample(t, 1, 2) { // cp-3 has just joined again
		planes[i].row("leaves", func(m machine) { m.leavesAndJoins(planes[2], planes) })
	}
	cp1.row("restored", func(m machine) { m.restoresOneOfThree(planes, w) })
	cp1.row("recover", func(m machine) { m.recoversEtcd(planes) })
	if tier.Full() {
		cp1.row("encrypted", func(m machine) { m.encryptsPlanes(planes) })
	}
	w.row("renamed", func(m machine) { m.getsAnotherName(cp1) })
	planes[2].row("copied-manifest", machine.hasCopyOfManifest) // its kubelet may restart etcd for it
	cp1.row("lost-host", func(m machine) { m.removesLost(planes[2], cp2); planes = planes[:2] })
	cp1.row("reset", func(m machine) { m.isNotReset(planes[1:]) })
}

func sideBySide(all ...func()) {
	var group sync.WaitGroup
	for _, f := range all {
		group.Go(f)
	}
	group.Wait()
}

func (m machine) knowsEndpoint(planes []machine) {
	m.Helper()
	hosts := m.must("cat", "/etc/hosts")
	for _, p := range planes {
		hosts += p.node.IP() + " " + sharedEndpoint + "\n"
	}
	m.write("/etc/hosts", hosts)
	m.must("chmod", "0644", "/etc/hosts")
}

// joinCommands asks m for the join arguments of a worker and of a control plane, without the program's name.
func (m machine) joinCommands() (worker, plane []string) {
	m.Helper()
	ask := func(more ...string) []string {
		out := m.must(append([]string{"slipway", "token", "create", "--print-join-command"}, more...)...)
		words := strings.Fields(strings.ReplaceAll(out, "\\\n", " "))
		return append(words[2:], "--ignore-preflight-errors="+nodes.IgnorePreflightErrors)
	}
	return ask(), ask("--control-plane")
}

func (m machine) runs(program, command string, args []string) {
	m.Helper()
	started := time.Now()
	if out, err := m.try(append([]string{program, command}, args...)...); err != nil {
		m.Errorf("%s %s on %s: %v\n%s", program, command, m.node.Name(), err, out)
	}
	m.Logf("%s %s on %s took %.1fs", program, command, m.node.Name(), time.Since(started).Seconds())
}

func (m machine) etcdctl(args ...string) (string, error) {
	return m.etcdctlAt("https://localhost:2379", args...)
}

func (m machine) etcdctlAt(endpoints string, args ...string) (string, error) {
	const pki = "/etc/kubernetes/pki/etcd/"
	return m.try(append([]string{"etcdctl", "--endpoints=" + endpoints, "--cacert=" + pki + "ca.crt",
		"--cert=" + pki + "peer.crt", "--key=" + pki + "peer.key"}, args...)...)
}

// hasVoters waits until etcd has exactly these members, all of them voters.
func (m machine) hasVoters(want ...machine) {
	m.Helper()
	var names []string
	for _, w := range want {
		names = append(names, w.node.Name())
	}
	slices.Sort(names)
	m.eventually("etcd's voters", readyLimit, func() error {
		out, err := m.etcdctl("member", "list")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var got []string
		for line := range strings.Lines(out) {
			if cells := strings.Split(strings.TrimSpace(line), ", "); len(cells) == 6 && cells[1] == "started" && cells[5] == "false" {
				got = append(got, cells[2])
			} else {
				return fmt.Errorf("not a voter: %s", line)
			}
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			return fmt.Errorf("voters %v, want %v", got, names)
		}
		return nil
	})
}

// isControlPlaneLike compares the files of a joined control plane with those of the first, which has the reference's modes.
func (m machine) isControlPlaneLike(first machine) {
	m.Helper()
	list := func(n machine) []string {
		out := n.must("find", "/etc/kubernetes", "-type", "f", "-printf", `%p %m\n`)
		return slices.DeleteFunc(slices.Sorted(strings.SplitSeq(strings.TrimSpace(out), "\n")), func(s string) bool {
			return strings.HasPrefix(s, "/etc/kubernetes/super-admin.conf ") // only the first has it
		})
	}
	if got, want := list(m), list(first); !slices.Equal(got, want) {
		m.Errorf("files of a joined control plane:\n%s\nof the first:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if conf := m.must("cat", "/etc/kubernetes/kubelet.conf"); !strings.Contains(conf, "server: https://"+m.node.IP()+":6443") {
		m.Errorf("the kubelet does not talk to the API server beside it:\n%s", conf)
	}
}

// canBeLost cuts m's power for a while.
func (m machine) canBeLost(other machine) {
	m.Helper()
	m.isLost(other)
	other.keepsEtcdRunning(m)
	if err := m.node.Start(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.knowsEndpointStill()
	other.ready(m.node.Name())
	m.eventually("the API server of "+m.node.Name(), readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+m.node.IP()+":6443", "get", "--raw", "/readyz")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// keepsEtcdRunning renews etcd's certificate while another member is down, when a restart would cost the cluster its quorum.
func (m machine) keepsEtcdRunning(lost machine) {
	m.Helper()
	etcd := func() string { return m.must("pidof", "etcd") }
	before := etcd()
	out, err := m.try("slipway", "certs", "renew", "etcd-server", "--restart")
	if err == nil || !strings.Contains(out, "etcd was not") || !strings.Contains(out, lost.node.Name()+" does not (") {
		m.Errorf("renew --restart while %s is lost: %v\n%s", lost.node.Name(), err, out)
	}
	if after := etcd(); after != before {
		m.Errorf("etcd was restarted: process %s, then %s", before, after)
	}
}

// isLost cuts m's power. The API of another control plane still accepts writes.
func (m machine) isLost(other machine) {
	m.Helper()
	if err := m.node.Kill(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.eventually("a write without "+m.node.Name(), readyLimit, func() error {
		out, err := other.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+other.node.IP()+":6443",
			"--request-timeout=5s", "create", "configmap", "without-"+m.node.Name())
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// knowsEndpointStill fails if the node's hosts file was replaced.
func (m machine) knowsEndpointStill() {
	m.Helper()
	m.must("grep", "-q", sharedEndpoint, "/etc/hosts")
}

func (m machine) leavesAndJoins(other machine, planes []machine) {
	m.Helper()
	m.runs("slipway", "reset", []string{"--force"})
	left := slices.DeleteFunc(slices.Clone(planes), func(p machine) bool { return p.node == m.node })
	other.hasVoters(left...)
	other.deletes(m)
	_, plane := other.joinCommands()
	m.runs("slipway", "join", plane)
	other.ready(m.node.Name())
	other.hasVoters(planes...)
}

// deletes deletes the Node of a control plane that's gone.
func (m machine) deletes(gone machine) {
	m.Helper()
	m.eventually("deleting node "+gone.node.Name(), readyLimit, func() error { // etcd may be electing a leader
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+m.node.IP()+":6443",
			"--request-timeout=10s", "delete", "node", "--ignore-not-found", gone.node.Name())
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// restoresOneOfThree restores a snapshot on one of three control planes, in a run that's killed at each step. The others were reset, as
// the refusal says, so they boot without etcd. They come back with the commands that the restore names.
func (m machine) restoresOneOfThree(planes []machine, workers ...machine) {
	tier.OnlyFull(m.T, "TestWorkers/etcd-restore")
	const dir = "/root/restore"
	defer m.must("rm", "-rf", dir)
	others := slices.DeleteFunc(slices.Clone(planes), func(p machine) bool { return p.node == m.node })
	kept := m.hasDeployment("scaled")
	file := strings.TrimSpace(m.must("slipway", "etcd", "snapshot", "save", "--dir", dir))
	m.hasLostFuture()
	again := []string{"slipway", "etcd", "restore", file, "--yes"}
	refusal, err := m.try(again...)
	if err == nil {
		m.Fatalf("it was restored beside other members:\n%s", refusal)
	}
	for _, p := range others {
		fact.In(m.T, refusal, "`slipway reset`", p.node.Name())
		p.runs("slipway", "reset", []string{"--force"})
	}
	m.hasVoters(m)
	others[0].bootsWithoutEtcd()

	for _, at := range restoreInstants {
		if said, err := m.runUntil(at, nothingMore, again...); err == nil { // it ended first
			m.Logf("it ended before %s:\n%s", at, said)
			break
		}
	}
	started := time.Now()
	said := m.said(again...)
	m.Logf("the last run took %.1fs", time.Since(started).Seconds())
	m.isRestored(kept, workers)
	for _, p := range others {
		fact.In(m.T, said, p.node.Name(), "`slipway reset --force`", "`kubectl delete node --ignore-not-found "+p.node.Name()+"`", "`slipway token create --print-join-command --control-plane`")
		m.takesBack(p)
	}
	m.hasVoters(planes...)
	m.isRestored(kept, workers)
	m.must("slipway", "etcd", "prune", "--yes")
	m.kubectl("delete", "deployment", "scaled")
}

// bootsWithoutEtcd boots a host that was reset, which has no data of etcd to start with.
func (m machine) bootsWithoutEtcd() {
	m.Helper()
	if err := m.node.Kill(m.Context()); err != nil {
		m.Fatal(err)
	}
	if err := m.node.Start(m.Context()); err != nil {
		m.Fatal(err)
	}
	m.eventually("containerd", readyLimit, func() error { _, err := m.try("ctr", "version"); return err })
	m.must("sh", "-c", "! pidof etcd; test ! -e /var/lib/etcd/member; test ! -e /etc/kubernetes/manifests/etcd.yaml")
}
