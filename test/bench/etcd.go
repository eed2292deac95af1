// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// measureEtcd measures the worst day, for which kubeadm has no commands: a quorum that's lost for good, and a restore.
func measureEtcd(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d: etcd\n", round+1, rounds)
		if err := measureWorstDay(ctx, lab, t); err != nil {
			return err
		}
	}
	return nil
}

// measureWorstDay loses two of three control planes. The survivor goes on, two machines that are ready take the lost ones' place, and
// in the end, the survivor alone goes back to a snapshot.
func measureWorstDay(ctx context.Context, lab *nodes.Lab, t *table) error {
	w := &joining{table: t}
	var planes []*nodes.Node
	for _, name := range []string{"cp-1", "cp-2", "cp-3", "cp-4", "cp-5"} {
		node, err := lab.StartNode(ctx, nodes.NodeSpec{Name: name})
		if err != nil {
			return err
		}
		defer func() { _ = node.Remove(context.WithoutCancel(ctx)) }()
		planes = append(planes, node)
	}
	w.first = planes[0]
	if err := w.first.WriteFile(configFile, []byte(w.first.InitConfig(lab.KubernetesVersion(), w.first.IP()+":6443")), 0o600); err != nil {
		return err
	}
	if _, err := w.first.Output(ctx, programs[0], "init", "--config", configFile); err != nil {
		return err
	}
	if err := w.joinPlanes(ctx, planes[1:3]); err != nil {
		return err
	}
	if err := w.recovers(ctx, planes[1:3], planes[3:]); err != nil {
		return err
	}
	return w.restores(ctx, planes[3:])
}

// joinPlanes joins control planes one after the other.
func (j *joining) joinPlanes(ctx context.Context, planes []*nodes.Node) error {
	command, err := j.joinCommand(ctx, "--control-plane")
	if err != nil {
		return err
	}
	for _, p := range planes {
		if _, err := p.Combined(ctx, slices.Concat([]string{programs[0], "join"}, command)...); err != nil {
			return err
		}
	}
	return nil
}

// recovers loses two control planes, and measures until the survivor accepts a write, and until etcd has three members again.
func (j *joining) recovers(ctx context.Context, lost, ready []*nodes.Node) error {
	for _, p := range lost {
		if err := p.Kill(ctx); err != nil {
			return err
		}
	}
	command := []string{programs[0], "etcd", "recover", "--yes"}
	if err := j.await(ctx, "the loss to be noticed", func() error {
		_, err := j.first.Combined(ctx, append(command, "--dry-run")...)
		return err
	}); err != nil {
		return err
	}
	started := time.Now()
	if _, err := j.first.Combined(ctx, command...); err != nil {
		return err
	}
	if err := j.await(ctx, "a write", func() error {
		_, err := j.first.Combined(ctx, "kubectl", admin, "create", "configmap", "recovered")
		return err
	}); err != nil {
		return err
	}
	j.table.add(rowRecover, programs[0], time.Since(started).Seconds())
	err := j.joinPlanes(ctx, ready)
	j.table.add(rowThree, programs[0], time.Since(started).Seconds())
	return err
}

// restores resets the other control planes, and measures how long the API of the last is away while etcd is restored there.
func (j *joining) restores(ctx context.Context, others []*nodes.Node) error {
	file, err := j.first.Output(ctx, programs[0], "etcd", "snapshot", "save", "--dir=/root/saved")
	if err != nil {
		return err
	}
	for _, p := range others {
		if _, err := p.Combined(ctx, programs[0], "reset", "--force"); err != nil {
			return err
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := j.first.Combined(ctx, programs[0], "etcd", "restore", strings.TrimSpace(file), "--yes", ignore+",EtcdRestoreSpace")
		ended <- err
	}()
	last, longest := time.Now(), time.Duration(0)
	for {
		if _, err := j.first.Combined(ctx, "kubectl", admin, "--request-timeout=1s", "get", "--raw=/readyz"); err == nil {
			longest = max(longest, time.Since(last))
			last = time.Now()
		}
		select {
		case err := <-ended:
			j.table.add(rowRestore, programs[0], longest.Seconds())
			return errors.WithMessage(err, "etcd restore")
		case <-time.After(50 * time.Millisecond):
		}
	}
}
