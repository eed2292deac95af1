// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
)

// triesChange changes a flag of the controller manager and a setting of the kubelet with --try: a run that's killed while it waits
// is put back by systemd, a confirmed change counts, and --revert takes it back.
func (m machine) triesChange() {
	m.Helper()
	m.write("/root/try.yaml", "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\n"+
		"controllerManager: {extraArgs: [{name: profiling, value: \"false\"}]}\n---\n"+
		"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 88\n")
	command := []string{"slipway", "reconfigure", "--config", "/root/try.yaml", "--try"}
	state := func() string {
		return m.must("cat", "/etc/kubernetes/manifests/kube-controller-manager.yaml", "/var/lib/kubelet/config.yaml") +
			m.storedText("kubeadm-config", "ClusterConfiguration") + m.storedText("kubelet-config", "kubelet")
	}
	before := state()

	if !m.killedAt(instant{"--confirm", 0}, nothingMore, append(command, "5s")...) {
		m.Fatal("it was not killed while it waited")
	}
	started := time.Now()
	m.eventually("the unconfirmed change to be put back", readyLimit, func() error {
		if _, err := m.try("ls", "/etc/systemd/system/slipway-watch.service"); err == nil {
			return errors.New("slipway-watch.service is still there")
		}
		return nil
	})
	m.Logf("put back after %.1fs, 5 of them on trial", time.Since(started).Seconds())
	if now := state(); now != before {
		m.Fatalf("the unconfirmed change is still there (-before +after):\n%s", cmp.Diff(before, now))
	}
	out, err := m.try("slipway", "reconfigure", "--confirm")
	if err == nil {
		m.Errorf("a change that was put back was confirmed:\n%s", out)
	}
	fact.In(m, out, "put back")

	ended := make(chan error, 1)
	go func() {
		out, err := m.try(append(command, "2m")...)
		if err != nil {
			err = fmt.Errorf("%w:\n%s", err, out)
		}
		ended <- err
	}()
	m.eventually("the change to be confirmed", readyLimit, func() error {
		_, err := m.try("slipway", "reconfigure", "--confirm")
		return err
	})
	if err := <-ended; err != nil {
		m.Fatalf("the run whose change was confirmed: %v", err)
	}
	fact.In(m, state(), "--profiling=false", "maxPods: 88")
	m.healthy(everything)

	started = time.Now()
	m.must("slipway", "reconfigure", "--revert")
	m.Logf("taken back in %.1fs", time.Since(started).Seconds())
	if now := state(); now != before {
		m.Errorf("--revert does not lead to the state before (-before +after):\n%s", cmp.Diff(before, now))
	}
	files := m.everyFile()
	m.must("slipway", "reconfigure", "--revert")
	if now := m.everyFile(); now != files {
		m.Errorf("the second time, files have changed (-before +after):\n%s", cmp.Diff(files, now))
	}
	m.healthy(everything)
	m.must("rm", "-r", "/etc/kubernetes/tmp") // resets leave it
}
