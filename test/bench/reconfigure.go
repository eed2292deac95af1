// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"time"
)

const (
	// change is a document, or the first lines of the document for init.
	change     = "kind: ClusterConfiguration\napiServer: {extraArgs: [{name: profiling, value: \"false\"}]}\n"
	changeFile = "/root/change.yaml"
)

// reconfigure measures a change of the API server's flags on the only control plane, while a Pod on the worker writes.
func (j *joining) reconfigure(ctx context.Context, program string) error {
	if err := j.await(ctx, "the Pods to be Ready", func() error { return j.ready(ctx, systemPods, "pods", "--namespace=kube-system") }); err != nil {
		return err
	}
	const writer = "writer-reconfigure"
	if err := j.startWriter(ctx, writer); err != nil {
		return err
	}
	by := j.changeByHand
	if program == programs[0] {
		by = j.changeOnTrial
	}
	started := time.Now()
	if err := by(ctx); err != nil {
		return err
	}
	j.table.add(rowChange, program, time.Since(started).Seconds())
	// The writer notices the gap's end with its next write, and reports every second.
	if err := pause(ctx, settle); err != nil {
		return err
	}
	gap, err := j.gap(ctx, writer)
	if err == nil {
		j.table.add(rowChangeGap, program, gap.Seconds())
	}
	return err
}

// changeOnTrial includes the ten seconds for which the change has to work.
func (j *joining) changeOnTrial(ctx context.Context) error {
	if err := j.first.WriteFile(changeFile, []byte("apiVersion: kubeadm.k8s.io/v1beta4\n"+change), 0o600); err != nil {
		return err
	}
	_, err := j.first.Combined(ctx, programs[0], "reconfigure", "--config", changeFile)
	return err
}

// changeByHand follows kubeadm's documentation, and ends as soon as an API server with the flag is ready:
// https://kubernetes.io/docs/tasks/administer-cluster/kubeadm/kubeadm-reconfigure/
func (j *joining) changeByHand(ctx context.Context) error {
	config, err := j.first.ReadFile(configFile)
	if err != nil {
		return err
	}
	changed := strings.Replace(string(config), "kind: ClusterConfiguration\n", change, 1)
	if err := j.first.WriteFile(changeFile, []byte(changed), 0o600); err != nil {
		return err
	}
	for _, phase := range [][]string{{"upload-config", "kubeadm"}, {"control-plane", "apiserver"}} {
		if _, err := j.first.Combined(ctx, "kubeadm", "init", "phase", phase[0], phase[1], "--config", changeFile); err != nil {
			return err
		}
	}
	return j.await(ctx, "the API server with the flag", func() error {
		if _, err := j.first.Combined(ctx, "pgrep", "--full", "^kube-apiserver .*--profiling=false"); err != nil {
			return err
		}
		_, err := j.first.Output(ctx, "kubectl", admin, "get", "--raw=/readyz")
		return err
	})
}
