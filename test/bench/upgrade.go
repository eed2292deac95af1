// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// olderKubernetes is the clusters' minor version before the upgrade.
const olderKubernetes = "1.36"

const ignore = "--ignore-preflight-errors=" + nodes.IgnorePreflightErrors

// measureUpgrades measures the upgrade of kubeadm's control plane and worker. kubeadm needs minutes for it, so there are fewer
// rounds.
func measureUpgrades(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	return takeTurns((rounds+1)/2, func(program string) error { return measureUpgrade(ctx, lab, program, t) })
}

func measureUpgrade(ctx context.Context, lab *nodes.Lab, program string, t *table) error {
	j := &joining{table: t}
	for name, node := range map[string]**nodes.Node{"cp-1": &j.first, "worker-1": &j.worker} {
		var err error
		if *node, err = lab.StartNode(ctx, nodes.NodeSpec{Name: name, Kubernetes: olderKubernetes, With: both}); err != nil {
			return err
		}
		defer func() { _ = (*node).Remove(context.WithoutCancel(ctx)) }()
	}
	if err := j.makeOlder(ctx, lab.VersionOf(olderKubernetes)); err != nil {
		return err
	}
	for _, n := range []*nodes.Node{j.first, j.worker} {
		if err := n.InstallKubernetes(ctx, ""); err != nil {
			return err
		}
	}
	if err := j.startWriter(ctx, "writer"); err != nil {
		return err
	}
	version := lab.KubernetesVersion()
	if err := timed(ctx, j.first, t, rowPlan, program, "upgrade", "plan", version, ignore); err != nil {
		return err
	}
	if err := timed(ctx, j.first, t, rowApply, program, "upgrade", "apply", version, "--yes", ignore); err != nil {
		return err
	}
	gap, err := j.gap(ctx, "writer")
	if err != nil {
		return err
	}
	t.add(rowGap, program, gap.Seconds())
	if err := timed(ctx, j.worker, t, rowNode, program, "upgrade", "node", ignore); err != nil || program != programs[0] {
		return err
	}
	return j.patchEtcd(ctx, program, version)
}

// patchEtcd measures an upgrade to the same version that changes only etcd. kubeadm leaves an etcd of the same version alone.
func (j *joining) patchEtcd(ctx context.Context, program, version string) error {
	const patch = `[{"op": "add", "path": "/spec/containers/0/command/-", "value": "--log-level=warn"}]`
	if err := j.first.WriteFile("/root/patches/etcd+json.json", []byte(patch), 0o600); err != nil {
		return err
	}
	if err := j.startWriter(ctx, "writer-etcd"); err != nil {
		return err
	}
	if err := timed(ctx, j.first, j.table, rowEtcd, program, "upgrade", "apply", version, "--yes", "--patches=/root/patches", ignore); err != nil {
		return err
	}
	gap, err := j.gap(ctx, "writer-etcd")
	if err == nil {
		j.table.add(rowEtcdGap, program, gap.Seconds())
	}
	return err
}

// makeOlder makes the cluster with the older nodes' kubeadm, and waits until all of it works.
func (j *joining) makeOlder(ctx context.Context, version string) error {
	if err := j.first.WriteFile(configFile, []byte(j.first.InitConfig(version, "")), 0o600); err != nil {
		return err
	}
	said, err := j.first.Output(ctx, "kubeadm", "init", "--config", configFile)
	if err != nil {
		return err
	}
	command, err := joinArguments(said)
	if err != nil {
		return err
	}
	if _, err := j.worker.Combined(ctx, append([]string{"kubeadm", "join"}, command...)...); err != nil {
		return err
	}
	return j.await(ctx, "the Pods to be Ready", func() error { return j.ready(ctx, systemPods, "pods", "--namespace=kube-system") })
}

// startWriter starts a Pod on the worker that writes 10 times a second.
func (j *joining) startWriter(ctx context.Context, name string) error {
	manifest := nodes.WriterManifest(name, j.worker.Name(), "https://"+j.first.IP()+":6443")
	if err := j.first.WriteFile("/root/writer.yaml", []byte(manifest), 0o600); err != nil {
		return err
	}
	if _, err := j.first.Combined(ctx, "kubectl", admin, "apply", "-f", "/root/writer.yaml"); err != nil {
		return err
	}
	return j.await(ctx, "the writer to write", func() error { _, err := j.gap(ctx, name); return err })
}

// gap returns the longest time a writer went without an answer to a write.
func (j *joining) gap(ctx context.Context, writer string) (time.Duration, error) {
	log, err := j.first.Output(ctx, "kubectl", admin, "logs", "--tail=1", writer)
	if err != nil {
		return 0, err
	}
	_, text, found := strings.Cut(strings.TrimSpace(log), " longest gap ")
	if !found {
		return 0, errors.Errorf("the writer says %q", log)
	}
	return time.ParseDuration(text)
}
