// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	// largeDatabase is the size of the database to save, in values of 1 MiB.
	largeDatabase = 1024
	// quiet is how long the writers write before a snapshot starts.
	quiet = 15 * time.Second

	savedDir = "/root/saved"
)

// savers save a snapshot: Slipway, and etcd's own program, which kubeadm's documentation names.
var savers = map[string][]string{
	programs[0]: {"/usr/local/bin/slipway", "etcd", "snapshot", "save", "--dir=" + savedDir},
	programs[1]: {
		"/usr/local/bin/etcdctl", "--endpoints=" + localEtcd, "--cacert=" + etcdPKI + "ca.crt", "--cert=" + etcdPKI + "peer.crt",
		"--key=" + etcdPKI + "peer.key", "snapshot", "save", savedDir + "/etcdctl.db",
	},
}

// measureSnapshots saves snapshots of a large database while clients write.
func measureSnapshots(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	node, err := lab.StartNode(ctx, nodes.NodeSpec{Name: "cp-1"})
	if err != nil {
		return err
	}
	defer func() { _ = node.Remove(context.WithoutCancel(ctx)) }()
	if err := node.WriteFile(configFile, []byte(node.InitConfig(lab.KubernetesVersion(), "")), 0o600); err != nil {
		return err
	}
	if _, err := node.Output(ctx, programs[0], "init", "--config", configFile); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "filling etcd with %d MiB\n", largeDatabase)
	if _, err := writeOn(ctx, node, writing{Fill: largeDatabase}); err != nil {
		return err
	}
	return takeTurns(rounds, func(program string) error {
		if _, err := node.Combined(ctx, "rm", "-rf", savedDir); err != nil {
			return err
		}
		if _, err := node.Combined(ctx, "mkdir", "-m", "0700", savedDir); err != nil {
			return err
		}
		if _, err := node.Combined(ctx, "sync"); err != nil { // what was written before would slow the first writes down
			return err
		}
		w, err := writeOn(ctx, node, writing{Quiet: quiet, Command: savers[program]})
		if err != nil {
			return err
		}
		t.add(rowSave, program, w.Took.Seconds())
		t.add(rowSaveMemory, program, w.Memory)
		t.add(rowSaveWrites, program, percentile99(w.Meanwhile).Seconds()/percentile99(w.Before).Seconds())
		fmt.Fprintf(os.Stderr, "%d writes before, 99th percentile %s; %d meanwhile, %s\n",
			len(w.Before), percentile99(w.Before), len(w.Meanwhile), percentile99(w.Meanwhile))
		return nil
	})
}

// writeOn makes a copy of this program write to a node's etcd.
func writeOn(ctx context.Context, node *nodes.Node, w writing) (written, error) {
	var result written
	self, err := os.Executable()
	if err != nil {
		return result, err
	}
	const there = "/root/writer"
	if err := node.CopyIn(self, there); err != nil {
		return result, err
	}
	order, err := json.Marshal(w)
	if err != nil {
		return result, err
	}
	var out, said bytes.Buffer
	err = node.Exec(ctx, nodes.Cmd{Args: []string{there}, Env: []string{writerVariable + "=" + string(order)}, Stdout: &out, Stderr: &said})
	if err != nil {
		return result, errors.Wrap(err, said.String())
	}
	return result, errors.Wrap(json.Unmarshal(out.Bytes(), &result), out.String())
}

// percentile99 is the duration that one of 100 writes exceeds.
func percentile99(durations []time.Duration) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	return sorted[len(sorted)*99/100]
}
