// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/joiners"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	admin = "--kubeconfig=/etc/kubernetes/admin.conf"
	// readyLimit bounds the time until a cluster is ready for the next join.
	readyLimit = 2 * time.Minute
)

// joining is a cluster of one control plane, with hosts that join it.
type joining struct {
	first, worker, plane *nodes.Node
	// command and planeCommand are the arguments of a join, from the address on.
	command, planeCommand []string
	table                 *table
}

// measureJoins lets both programs join the same cluster, made by Slipway.
func measureJoins(ctx context.Context, lab *nodes.Lab, rounds int, t *table) error {
	j, err := newJoining(ctx, lab, t)
	if err != nil {
		return err
	}
	err = takeTurns(rounds, func(program string) error {
		if err := j.joinWorker(ctx, program); err != nil {
			return err
		}
		return j.joinPlane(ctx, program)
	})
	if err != nil {
		return err
	}
	return j.joinMany(ctx, rounds)
}

func newJoining(ctx context.Context, lab *nodes.Lab, t *table) (*joining, error) {
	j := &joining{table: t}
	for name, node := range map[string]**nodes.Node{"cp-1": &j.first, "cp-2": &j.plane, "worker-1": &j.worker} {
		var err error
		if *node, err = lab.StartNode(ctx, nodes.NodeSpec{Name: name, With: both}); err != nil {
			return nil, err
		}
	}
	config := j.first.InitConfig(lab.KubernetesVersion(), j.first.IP()+":6443")
	if err := j.first.WriteFile(configFile, []byte(config), 0o600); err != nil {
		return nil, err
	}
	if _, err := j.first.Output(ctx, programs[0], "init", "--config", configFile); err != nil {
		return nil, err
	}
	var err error
	if j.command, err = j.joinCommand(ctx); err != nil {
		return nil, err
	}
	if j.planeCommand, err = j.joinCommand(ctx, "--control-plane"); err != nil {
		return nil, err
	}
	// The controllers that sign certificates start last, whichever program waits for them.
	return j, j.await(ctx, "the Pods to be Ready", func() error {
		return j.ready(ctx, systemPods-1, "pods", "--namespace=kube-system")
	})
}

// joinCommand makes a token and returns the arguments after "join" in its command.
func (j *joining) joinCommand(ctx context.Context, more ...string) ([]string, error) {
	text, err := j.first.Output(ctx, append([]string{programs[0], "token", "create", "--print-join-command"}, more...)...)
	if err != nil {
		return nil, err
	}
	return joinArguments(text)
}

// await calls ok four times a second until it succeeds.
func (j *joining) await(ctx context.Context, what string, ok func() error) error {
	for deadline := time.Now().Add(readyLimit); ; {
		err := ok()
		if err == nil || time.Now().After(deadline) {
			return errors.Wrapf(err, "waiting for %s", what)
		}
		if err := pause(ctx, time.Second/4); err != nil {
			return err
		}
	}
}

// joinWorker measures from the start of a join until the API has the node.
func (j *joining) joinWorker(ctx context.Context, program string) error {
	watch, err := j.watchNodes(ctx, j.worker.Name())
	if err != nil {
		return err
	}
	started := time.Now()
	_, err = j.worker.Combined(ctx, slices.Concat([]string{program, "join"}, j.command)...)
	at, watchErr := watch.end()
	if err != nil {
		return err
	}
	if watchErr != nil {
		return watchErr
	}
	j.table.add(rowWorker, program, at.Sub(started).Seconds())
	return j.leave(ctx, j.worker)
}

// nodeWatch waits beside a join for its node to be registered.
type nodeWatch struct {
	stop context.CancelFunc
	seen chan time.Time
}

// watchNodes returns once it would see a new node.
func (j *joining) watchNodes(ctx context.Context, name string) (*nodeWatch, error) {
	ctx, stop := context.WithTimeout(ctx, readyLimit)
	w := &nodeWatch{stop, make(chan time.Time, 1)}
	in, out := io.Pipe()
	ready := make(chan struct{})
	go func() {
		err := j.first.Exec(ctx, nodes.Cmd{Args: []string{"kubectl", admin, "get", "nodes", "--watch", "--output=name"}, Stdout: out})
		_ = out.CloseWithError(err)
	}()
	go func() {
		defer close(w.seen)
		defer in.Close() // kubectl may print more
		for lines := bufio.NewScanner(in); lines.Scan(); {
			switch lines.Text() {
			case "node/" + j.first.Name():
				select {
				case <-ready:
				default:
					close(ready)
				}
			case "node/" + name:
				w.seen <- time.Now()
				return
			}
		}
	}()
	select {
	case <-ready:
		return w, nil
	case <-ctx.Done():
		stop()
		return nil, errors.New("kubectl does not show the first node")
	}
}

// end returns the time when the node appeared.
func (w *nodeWatch) end() (time.Time, error) {
	defer w.stop()
	at, ok := <-w.seen
	if !ok {
		return at, errors.New("the node was not registered")
	}
	return at, nil
}

// joinPlane measures a control plane's join to its end.
func (j *joining) joinPlane(ctx context.Context, program string) error {
	if err := timed(ctx, j.plane, j.table, rowPlane, program, append([]string{"join"}, j.planeCommand...)...); err != nil {
		return err
	}
	return j.leave(ctx, j.plane)
}

// leave restores a node's host to its former state, and removes its etcd member. kubeadm does that for both programs, so that
// each starts from the same state.
func (j *joining) leave(ctx context.Context, n *nodes.Node) error {
	if _, err := n.Combined(ctx, programs[1], "reset", "--force"); err != nil {
		return err
	}
	if _, err := n.Combined(ctx, "rm", "-rf", "/etc/kubernetes/pki", "/etc/kubernetes/manifests"); err != nil {
		return err
	}
	if _, err := j.first.Combined(ctx, "kubectl", admin, "delete", "node", n.Name(), "--ignore-not-found"); err != nil {
		return err
	}
	return pause(ctx, settle)
}

// joinMany measures only Slipway: this part of kubeadm's join doesn't run without the rest.
func (j *joining) joinMany(ctx context.Context, rounds int) error {
	const many = 20
	after := func(flag string) string { return j.command[slices.Index(j.command, flag)+1] }
	for round := range rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d: %d joins at once\n", round+1, rounds, many)
		report, err := joiners.Run(ctx, j.first, joiners.Order{
			Count: many, Endpoint: j.command[0], Token: after("--token"), Pin: after("--discovery-token-ca-cert-hash"),
		})
		if err == nil && len(report.Failed) > 0 {
			err = errors.Errorf("%d of %d joins failed: %s", len(report.Failed), many, report.Failed[0])
		}
		if err != nil {
			return err
		}
		j.table.add(rowMany, programs[0], report.Wall.Seconds())
		j.table.add(rowManyCPU, programs[0], report.CPU.Seconds())
		j.table.add(rowManyAsks, programs[0], float64(report.Requests))
	}
	return nil
}
