// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	// systemPods is the number of system Pods in a cluster of a control plane and a worker: four static ones, two of CoreDNS, and
	// kube-proxy on each node.
	systemPods = 8
	// fileCheck is the wait for the kubelet to check its manifests; see renewByHand.
	fileCheck = 20 * time.Second
)

// measureClusters measures users' waiting time: from the start of init until a worker has joined and everything works. A cluster
// takes a minute, so there are fewer of them.
func measureClusters(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	return takeTurns((rounds+1)/2, func(program string) error { return measureCluster(ctx, lab, program, t) })
}

func measureCluster(ctx context.Context, lab *nodes.Lab, program string, t *table) error {
	c := &joining{table: t}
	for name, node := range map[string]**nodes.Node{"cp-1": &c.first, "worker-1": &c.worker} {
		var err error
		if *node, err = lab.StartNode(ctx, nodes.NodeSpec{Name: name, With: both}); err != nil {
			return err
		}
		defer func() { _ = (*node).Remove(context.WithoutCancel(ctx)) }()
	}
	if err := c.first.WriteFile(configFile, []byte(c.first.InitConfig(lab.KubernetesVersion(), "")), 0o600); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	if err := c.grow(ctx, program); err != nil {
		return err
	}
	if err := c.renew(ctx, program); err != nil {
		return err
	}
	return c.reconfigure(ctx, program)
}

// grow runs init and then join, and waits until all Pods work.
func (j *joining) grow(ctx context.Context, program string) error {
	started := time.Now()
	add := func(row string) { j.table.add(row, program, time.Since(started).Seconds()) }
	said, err := j.first.Output(ctx, program, "init", "--config", configFile)
	if err != nil {
		return err
	}
	command, err := joinArguments(said)
	if err != nil {
		return err
	}
	if _, err := j.worker.Combined(ctx, slices.Concat([]string{program, "join"}, command)...); err != nil {
		return err
	}
	add(rowInitJoin)
	if err := j.await(ctx, "the nodes to be Ready", func() error {
		return j.ready(ctx, 2, "nodes")
	}); err != nil {
		return err
	}
	add(rowNodesReady)
	err = j.await(ctx, "the Pods to be Ready", func() error { return j.ready(ctx, systemPods, "pods", "--namespace=kube-system") })
	add(rowPodsReady)
	return err
}

// ready waits for objects to be Ready, and returns an error if there are fewer than count yet.
func (j *joining) ready(ctx context.Context, count int, what ...string) error {
	args := append([]string{"kubectl", admin, "wait", "--for=condition=Ready", "--timeout=" + readyLimit.String(), "--all"}, what...)
	text, err := j.first.Output(ctx, args...)
	if found := strings.Count(text, "condition met"); err == nil && found < count {
		err = errors.Errorf("%d of %d are there", found, count)
	}
	return err
}

// joinArguments returns the arguments after "join" in the command that init prints.
func joinArguments(text string) ([]string, error) {
	words := strings.Fields(strings.ReplaceAll(text, "\\\n", " "))
	for i, word := range words[:max(0, len(words)-1)] {
		if word == "join" && strings.HasSuffix(words[i+1], ":6443") {
			return append(words[i+1:], "--ignore-preflight-errors="+nodes.IgnorePreflightErrors), nil
		}
	}
	return nil, errors.Errorf("no join command in %q", text)
}

func (j *joining) renew(ctx context.Context, program string) error {
	started := time.Now()
	by := j.renewByHand
	if program == programs[0] {
		by = func(ctx context.Context) error {
			_, err := j.first.Combined(ctx, program, "certs", "renew", "all", "--restart")
			return err
		}
	}
	if err := by(ctx); err != nil {
		return err
	}
	err := j.await(ctx, "the API to be ready", func() error {
		_, err := j.first.Output(ctx, "kubectl", admin, "get", "--raw=/readyz")
		return err
	})
	j.table.add(rowRenew, program, time.Since(started).Seconds())
	return err
}

// renewByHand follows kubeadm's documentation:
// https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-certs/#manual-certificate-renewal
func (j *joining) renewByHand(ctx context.Context) error {
	const manifests, away = "/etc/kubernetes/manifests", "/etc/kubernetes/away"
	if _, err := j.first.Combined(ctx, "kubeadm", "certs", "renew", "all"); err != nil {
		return err
	}
	if _, err := j.first.Combined(ctx, "mv", manifests, away); err != nil {
		return err
	}
	if err := pause(ctx, fileCheck); err != nil {
		return err
	}
	_, err := j.first.Combined(ctx, "mv", away, manifests)
	return err
}
