// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// measureUps measures `up`, which kubeadm has no command for: from a machine with only an init system and the bundle on its disk,
// to a node with its first Pod Ready.
func measureUps(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	bundles, err := filepath.Glob("dist/slipway-bundle-*-linux-" + runtime.GOARCH + ".tar")
	if err != nil || len(bundles) != 1 {
		return errors.Errorf("there are %d bundles in dist/, and one is needed: run `make bundle`", len(bundles))
	}
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d: up\n", round+1, rounds)
		if err := measureUp(ctx, lab, bundles[0], t); err != nil {
			return err
		}
	}
	return nil
}

func measureUp(ctx context.Context, lab *nodes.Lab, bundle string, t *table) error {
	node, err := lab.StartNode(ctx, nodes.NodeSpec{Name: "cp-1", Bare: true})
	if err != nil {
		return err
	}
	defer func() { _ = node.Remove(context.WithoutCancel(ctx)) }()
	if err := node.InstallSlipway(); err != nil {
		return err
	}
	if err := node.CopyIn(bundle, "/root/bundle.tar"); err != nil {
		return err
	}
	if err := node.WriteFile(configFile, []byte(node.InitConfig(lab.KubernetesVersion(), "")), 0o600); err != nil {
		return err
	}
	if err := pause(ctx, settle); err != nil {
		return err
	}
	const timeline = "/root/up.json"
	if err := timed(ctx, node, t, rowUp, programs[0], "up", "--bundle=/root/bundle.tar", "--config="+configFile, "--network=flannel", "--schedulable",
		"--timeline="+timeline, ignore); err != nil {
		return err
	}
	data, err := node.ReadFile(timeline)
	if err != nil {
		return err
	}
	return addParts(data, t)
}

// addParts adds the time of each part of up, from a timeline.
func addParts(timeline []byte, t *table) error {
	var trace struct {
		TraceEvents []struct {
			Name    string
			Ph      string
			Ts, Dur int64 // µs
		}
	}
	if err := json.Unmarshal(timeline, &trace); err != nil {
		return errors.Wrap(err, "the timeline of up")
	}
	for part, row := range map[string]string{"prepare": rowUpPrepare, "init": rowUpInit, "wait-node": rowUpWait} {
		var begin, end int64 = -1, -1
		for _, e := range trace.TraceEvents {
			if e.Ph != "X" || e.Name != part && !strings.HasPrefix(e.Name, part+"/") {
				continue
			}
			if begin < 0 || e.Ts < begin {
				begin = e.Ts
			}
			end = max(end, e.Ts+e.Dur)
		}
		if end < 0 {
			return errors.Errorf("the timeline of up has no %s", part)
		}
		t.add(row, programs[0], (time.Duration(end-begin) * time.Microsecond).Seconds())
	}
	return nil
}
