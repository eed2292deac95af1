// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/tier"
)

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
		fact.In(m.T, said, p.node.Name(), "`slipway reset --force`", "`kubectl delete node --ignore-not-found "+p.node.Name()+"`", "`slipway token create --print-join-command")
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
