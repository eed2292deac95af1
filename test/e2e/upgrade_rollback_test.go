// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestUpgradeRollback goes back twice from the newest Kubernetes to the one before, in kubeadm's cluster: with etcd's data, in
// runs that are killed, and without.
func TestUpgradeRollback(t *testing.T) {
	tier.OnlyFull(t, "TestUpgrade/rollback")
	m := bootOlder(t)
	old := strings.TrimSpace(m.must("kubeadm", "version", "--output=short"))
	m.kubeadmInit(podSubnet)
	m.hasNoRollback()
	m.kubectl("create", "configmap", "kept")
	m.apply()
	m.refusesRollbackUnasked()

	m.kubectl("create", "configmap", "lost")
	m.kubectl("delete", "configmap", "kept")
	back := []string{"slipway", "upgrade", "rollback", "--restore-etcd", "--yes", littleRoom}
	m.killedOften(back)
	m.hasConfigMaps("kept")
	m.runsImages(map[string]string{"etcd": "3.6.8-0", "kube-apiserver": old, "kube-controller-manager": old, "kube-scheduler": old})
	m.healthy(everything) // new Pods run, so the watches of the controllers, the scheduler and the kubelet have recovered
	m.thirdRunWritesNothing(back...)
	m.hasConfigMaps("kept")
	m.keepsDataAside()

	m.apply()
	m.kubectl("create", "configmap", "written")
	m.breaksAPIServer()
	m.must("slipway", "upgrade", "rollback", "--dry-run")
	back = []string{"slipway", "upgrade", "rollback", "--yes"}
	started := time.Now()
	m.must(back...)
	t.Logf("without etcd, it took %.1fs", time.Since(started).Seconds())
	m.hasConfigMaps("kept", "written")
	m.runsImages(map[string]string{"etcd": "3.7.0-0", "kube-apiserver": old, "kube-controller-manager": old, "kube-scheduler": old})
	if text := m.storedText("kubeadm-config", "ClusterConfiguration"); !strings.Contains(text, "kubernetesVersion: "+old+"\n") {
		t.Errorf("the stored configuration is\n%s", text)
	}
	if image := m.kubectl("get", "daemonset", "kube-proxy", "-n", "kube-system", "-o", "jsonpath={.spec.template.spec.containers[0].image}"); !strings.HasSuffix(image, ":"+old) {
		t.Errorf("kube-proxy has image %s", image)
	}
	m.thirdRunWritesNothing(back...)
}

// hasNoRollback: a node that wasn't upgraded can't go back.
func (m machine) hasNoRollback() {
	m.Helper()
	if out, err := m.try("slipway", "upgrade", "rollback", "--yes"); err == nil || !strings.Contains(out, "/etc/kubernetes/tmp") {
		m.Errorf("%v:\n%s", err, out)
	}
}

// killedOften kills a rollback right when it begins to restore and to stop etcd, and then later and later. Each run picks up
// where the one before stopped; phases/rollback/crash_test.go has each step.
func (m machine) killedOften(back []string) {
	m.Helper()
	for _, line := range []string{"[control-plane] Restoring /etc/kubernetes/tmp/", "[control-plane] Stopping"} {
		if at := (instant{line, 0}); !m.killedAt(at, nothingMore, back...) {
			m.Errorf("it ended before %s", at)
		}
	}
	for limit := 400 * time.Millisecond; ; limit *= 2 {
		said, err := m.try(append([]string{"timeout", "--signal=KILL", fmt.Sprint(limit.Seconds())}, back...)...)
		if err == nil {
			return
		}
		m.Logf("killed after %s:\n%s", limit, said)
		if limit > readyLimit {
			m.Fatalf("it does not end: %v", err)
		}
	}
}

// refusesRollbackUnasked: the question says what's lost, and no answer means no. A plan needs no answer.
func (m machine) refusesRollbackUnasked() {
	m.Helper()
	out, err := m.try("sh", "-c", "slipway upgrade rollback --restore-etcd "+littleRoom+" </dev/null")
	if err == nil || !strings.Contains(out, "is lost") {
		m.Errorf("%v:\n%s", err, out)
	}
	plan := m.must("slipway", "upgrade", "rollback", "--restore-etcd", "--dry-run", littleRoom)
	for _, want := range []string{"rename /var/lib/etcd/member to /var/lib/etcd/member.before-rollback-", "rename /var/lib/etcd/member.new to /var/lib/etcd/member\n"} {
		if !strings.Contains(plan, want) {
			m.Errorf("the plan has no %q", want)
		}
	}
	m.hasConfigMaps("kept")
}

// breaksAPIServer gives the API server an unknown flag, so that it doesn't start.
func (m machine) breaksAPIServer() {
	m.Helper()
	m.must("sed", "-i", "s/--secure-port=/--no-such-flag=/", "/etc/kubernetes/manifests/kube-apiserver.yaml")
	m.eventually("the API server to stop", readyLimit, func() error {
		if _, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "--raw", "/readyz", "--request-timeout=2s"); err == nil {
			return errors.New("it still answers")
		}
		return nil
	})
}

// hasConfigMaps checks the names of the ConfigMaps in namespace default, apart from kube-root-ca.crt.
func (m machine) hasConfigMaps(want ...string) {
	m.Helper()
	got := strings.Fields(m.kubectl("get", "configmaps", "-o", "jsonpath={.items[*].metadata.name}"))
	got = slices.DeleteFunc(got, func(name string) bool { return name == "kube-root-ca.crt" })
	if !slices.Equal(got, want) {
		m.Errorf("there are ConfigMaps %v, want %v", got, want)
	}
}

// runsImages waits until the mirror Pods have images with these tags and are ready.
func (m machine) runsImages(tags map[string]string) {
	m.Helper()
	m.eventually("the static Pods to run with their images", readyLimit, func() error {
		for component, tag := range tags {
			got, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "get", "pod", component+"-cp-1", "-n", "kube-system", "-o",
				`jsonpath={.status.containerStatuses[0].image} {.status.containerStatuses[0].ready}`)
			if err != nil || !strings.HasSuffix(got, ":"+tag+" true") { // without a Pod, the kubelet is about to make another
				return fmt.Errorf("%s: %s, %v", component, got, err)
			}
		}
		return nil
	})
}

// keepsDataAside checks that the replaced data is there once, and that nothing is left unfinished.
func (m machine) keepsDataAside() {
	m.Helper()
	names := strings.Fields(m.must("ls", "/var/lib/etcd"))
	if len(names) != 2 || names[0] != "member" || !strings.HasPrefix(names[1], "member.before-rollback-") {
		m.Errorf("/var/lib/etcd has %v", names)
	}
}

// aloneBackup keeps a backup from when m was the only control plane.
const aloneBackup = "/root/alone/"

// keepsBackupAlone makes a backup like kubeadm's while m is the only control plane.
func (m machine) keepsBackupAlone() {
	m.Helper()
	const root = aloneBackup
	at := strings.TrimSpace(m.must("date", "-u", "+%Y-%m-%d-%H-%M-%S"))
	m.must("mkdir", "-p", root+"kubeadm-backup-etcd-"+at)
	m.must("cp", "-r", "/etc/kubernetes/manifests", root+"kubeadm-backup-manifests-"+at)
	if out, err := m.etcdctl("snapshot", "save", root+"kubeadm-backup-etcd-"+at+"/snapshot.db"); err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
}

// refusesRestoreBeside: with m's etcd down, neither the snapshot nor the backup's static Pod knows the members that have joined
// since. A restore would start m alone with old data, while they carry on.
func (m machine) refusesRestoreBeside(others ...machine) {
	m.Helper()
	const pod, aside = "/etc/kubernetes/manifests/etcd.yaml", "/root/etcd.yaml"
	m.must("cp", "-rT", aloneBackup, "/etc/kubernetes/tmp")
	m.must("mv", pod, aside)
	m.eventually("etcd to stop", readyLimit, func() error {
		if out, err := m.try("pidof", "etcd"); err == nil {
			return errors.Errorf("process %s", out)
		}
		return nil
	})
	out, err := m.try("slipway", "upgrade", "rollback", "--restore-etcd", "--yes", littleRoom)
	if err == nil {
		m.Errorf("the restore began:\n%s", out)
	}
	for _, other := range others {
		if !strings.Contains(out, other.node.Name()) {
			m.Errorf("it does not name %s:\n%s", other.node.Name(), out)
		}
	}
	if names := strings.Fields(m.must("ls", "/var/lib/etcd")); !slices.Equal(names, []string{"member"}) {
		m.Errorf("/var/lib/etcd has %v", names)
	}
	m.must("rm", "-r", "/etc/kubernetes/tmp")
	m.must("mv", aside, pod)
	m.hasVoters(append([]machine{m}, others...)...)
	_, _ = m.try("pkill", "-KILL", "-x", "kube-apiserver") // it retries etcd ever more rarely; a new process does at once
	m.eventually("the API server of "+m.node.Name(), readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+m.node.IP()+":6443", "get", "--raw", "/readyz")
		return errors.Wrap(err, out)
	})
}

// knowsMembersAlone: a member without a quorum, which serves no clients, still lists the members at its peer URL. A member that's
// down has them in its database.
func (e *etcdProcess) knowsMembersAlone(second *etcdProcess) {
	e.Helper()
	e.stop()
	second.stop()
	second.start()
	ctx, cancel := context.WithTimeout(e.Context(), etcdLimit)
	defer cancel()
	found := e.api().Peers(ctx, []string{second.peerURL, e.peerURL})
	for ; found[0].Err != nil && ctx.Err() == nil; found = e.api().Peers(ctx, []string{second.peerURL, e.peerURL}) {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	f, err := os.Open(filepath.Join(e.dir, "member", "snap", "db"))
	if err != nil {
		e.Fatal(err)
	}
	defer f.Close()
	stored, err := etcd.StoredMembers(f)
	for what, members := range map[string][]etcd.Member{"told": found[0].Members, "stored": stored} {
		var names []string
		for _, m := range members {
			names = append(names, m.Name)
		}
		if slices.Sort(names); strings.Join(names, " ") != e.name+" second" {
			e.Errorf("members %s: %+v (%v, %v)", what, members, found[0].Err, err)
		}
	}
	if found[1].Err == nil {
		e.Errorf("it was stopped, and answers %+v", found[1])
	}
	e.start()
	for _, m := range []*etcdProcess{second, e} {
		if err := second.api().CaughtUp(e.Context(), etcd.At(m.peerURL)); err != nil {
			e.Fatal(err)
		}
	}
}
