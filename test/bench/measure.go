// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	// settle is the time for a freshly booted node to become quiet.
	settle = 3 * time.Second
	// starts is how often a round starts a program for its version, which is too quick to measure once.
	starts = 21
	// certRuns is how often a round makes all certificates, because the search for a pair of primes depends on luck.
	certRuns = 7

	configFile = "/root/init.yaml"
)

// measure gives a program its turn on a fresh node.
func measure(ctx context.Context, lab *nodes.Lab, program string, t *table) error {
	node, err := lab.StartNode(ctx, nodes.NodeSpec{Name: "cp-1", With: both})
	if err != nil {
		return err
	}
	defer func() { _ = node.Remove(context.WithoutCancel(ctx)) }()
	config := node.InitConfig(lab.KubernetesVersion(), "")
	if err := node.WriteFile(configFile, []byte(config), 0o600); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	if err := measureStarts(ctx, node, program, t); err != nil {
		return err
	}
	for range certRuns {
		if err := timed(ctx, node, t, rowCerts, program, "init", "phase", "certs", "all", "--config", configFile); err != nil {
			return err
		}
		if _, err := node.Output(ctx, "rm", "-r", "/etc/kubernetes/pki"); err != nil {
			return err
		}
	}
	if err := timed(ctx, node, t, rowChecks, program, "init", "phase", "preflight", "--config", configFile); err != nil {
		return err
	}
	return timed(ctx, node, t, rowInit, program, "init", "--config", configFile)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// timed runs a program on a node and adds the seconds it took.
func timed(ctx context.Context, node *nodes.Node, t *table, row, program string, args ...string) error {
	var said bytes.Buffer
	started := time.Now()
	err := node.Exec(ctx, nodes.Cmd{Args: append([]string{program}, args...), Stdout: &said, Stderr: &said})
	if err != nil {
		return errors.Wrapf(err, "%s said:\n%s\n", program, said.String())
	}
	t.add(row, program, time.Since(started).Seconds())
	return nil
}

// measureStarts starts the node's program directly on this machine, and measures time, memory and size.
func measureStarts(ctx context.Context, node *nodes.Node, program string, t *table) error {
	dir, err := os.MkdirTemp("", "slipway-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	local := filepath.Join(dir, program)
	if err := node.CopyOut("/usr/local/bin/"+program, local); err != nil {
		return err
	}
	info, err := os.Stat(local)
	if err != nil {
		return err
	}
	t.add(rowSize, program, float64(info.Size())/1e6)
	for range starts {
		cmd := exec.CommandContext(ctx, local, "version", "--output", "short")
		started := time.Now()
		if err := cmd.Run(); err != nil {
			return errors.Wrapf(err, "%s version", program)
		}
		t.add(rowVersion, program, float64(time.Since(started).Microseconds())/1e3)
		peak, err := peakMemory(local, "version", "--output", "short")
		if err != nil {
			return errors.Wrapf(err, "%s version", program)
		}
		t.add(rowMemory, program, peak)
	}
	return nil
}
