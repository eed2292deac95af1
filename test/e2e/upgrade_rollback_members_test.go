// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
)

// aloneBackup is where a backup is kept from when m was the only control plane.
const aloneBackup = "/root/alone/"

// keepsBackupAlone makes a backup, as kubeadm's are, while m is the only control plane.
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

// refusesRestoreBeside: with the etcd of m down, neither the snapshot nor the backup's static Pod knows the members that have
// joined since. A restore would start m alone with old data, while they carry on.
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
	out, err := m.try("slipway", "upgrade", "rollback", "--restore-etcd", "--yes")
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
	_, _ = m.try("pkill", "-KILL", "-x", "kube-apiserver") // it tries etcd again ever more rarely, and a new one at once
	m.eventually("the API server of "+m.node.Name(), readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "--server=https://"+m.node.IP()+":6443", "get", "--raw", "/readyz")
		return errors.Wrap(err, out)
	})
}

// knowsMembersAlone: a member without a quorum, which serves no clients, tells who the members are at its peer URL. One that is
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
		if slices.Sort(names); strings.Join(names, " ") != "restored second" {
			e.Errorf("members %s: %+v (%v, %v)", what, members, found[0].Err, err)
		}
	}
	if found[1].Err == nil {
		e.Errorf("it was stopped, and answers %+v", found[1])
	}
	e.start()
	for _, m := range []*etcdProcess{second, e} {
		if err := second.api().CaughtUp(e.Context(), m.peerURL); err != nil {
			e.Fatal(err)
		}
	}
}
