// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"

	"github.com/slipway-k8s/slipway/test/lab/internal/progress"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

const (
	// firstNode is the cluster's first node, where kubectl runs.
	firstNode = "cp-1"

	configPath    = "/etc/lab/init.yaml"
	adminPath     = "/etc/kubernetes/admin.conf"
	readyDeadline = 4 * time.Minute
)

// upOptions choose the nodes and the cluster.
type upOptions struct {
	controlPlanes, workers, nodes int
	noInit, bare                  bool
	tool, podSubnets              string
	with                          []string
}

func setUpUp(flags *flag.FlagSet) runner {
	var o upOptions
	flags.IntVar(&o.controlPlanes, "control-planes", 1, "how many control-plane nodes")
	flags.IntVar(&o.workers, "workers", 0, "how many workers")
	flags.IntVar(&o.nodes, "nodes", 0, "how many nodes in all, those beyond the control planes being workers")
	flags.BoolVar(&o.noInit, "no-init", false, "only boot the nodes")
	flags.BoolVar(&o.bare, "bare", false, "only boot the nodes, with an init system and nothing that Kubernetes needs")
	flags.StringVar(&o.tool, "tool", "slipway", "what makes the cluster: slipway or kubeadm")
	withVar(flags, &o.with)
	flags.StringVar(&o.podSubnets, "pod-subnets", nodes.DefaultPodSubnet, "where Pods get addresses from, with commas between several")
	return func(ctx context.Context, lab *nodes.Lab, args []string) error {
		if len(args) > 0 {
			return errUsage
		}
		if o.nodes > 0 {
			o.workers = o.nodes - o.controlPlanes
		}
		if o.tool != "slipway" && o.tool != nodes.Kubeadm {
			return errors.Errorf("--tool is slipway or kubeadm, not %q", o.tool)
		}
		if o.controlPlanes < 1 || o.controlPlanes > 9 || o.workers < 0 || o.workers > 29 {
			return errors.New("a lab has 1 to 9 control planes and up to 29 workers")
		}
		return (&upRun{upOptions: o, lab: lab, log: progress.New(os.Stderr)}).run(ctx)
	}
}

// withVar defines the flag for NodeSpec.With.
func withVar(flags *flag.FlagSet, with *[]string) {
	flags.Func("with", "what nodes have besides, with commas: kubeadm, the program; flannel, its images", func(text string) error {
		*with = strings.Split(text, ",")
		return nil
	})
}

// upRun is one run of up. It may be interrupted and started again.
type upRun struct {
	upOptions
	lab    *nodes.Lab
	log    *progress.Log
	planes []*nodes.Node
	others []*nodes.Node
}

func (u *upRun) run(ctx context.Context) error {
	if err := u.boot(ctx); err != nil {
		return err
	}
	if u.noInit || u.bare {
		u.help("the nodes are there", "exec "+firstNode+" bash")
		return nil
	}
	if err := u.init(ctx); err != nil {
		return err
	}
	if err := u.join(ctx); err != nil {
		return err
	}
	if err := u.log.Do("waiting until the nodes are Ready and the Pods run", func() error { return u.ready(ctx) }); err != nil {
		return err
	}
	u.help("the cluster is there", "kubectl get nodes,pods --all-namespaces")
	return nil
}

// specs returns the control planes' specs, then the workers'.
func (u *upRun) specs() []nodes.NodeSpec {
	spec := nodes.NodeSpec{PodSubnets: strings.Split(u.podSubnets, ","), Bare: u.bare, With: u.with}
	if u.tool == nodes.Kubeadm && !slices.Contains(spec.With, nodes.Kubeadm) {
		spec.With = append(spec.With, nodes.Kubeadm)
	}
	var all []nodes.NodeSpec
	for i := range u.controlPlanes {
		spec.Name = fmt.Sprintf("cp-%d", i+1)
		all = append(all, spec)
	}
	for i := range u.workers {
		spec.Name = fmt.Sprintf("worker-%d", i+1)
		all = append(all, spec)
	}
	return all
}

// boot makes the nodes' parts, and boots all nodes side by side.
func (u *upRun) boot(ctx context.Context) error {
	specs := u.specs()
	if err := u.lab.Build(ctx, specs...); err != nil {
		return err
	}
	all := make([]*nodes.Node, len(specs))
	group, ctx := errgroup.WithContext(ctx)
	for i, spec := range specs {
		group.Go(func() (err error) {
			all[i], err = u.lab.StartNode(ctx, spec)
			if err == nil && u.bare {
				err = all[i].InstallSlipway()
			}
			return err
		})
	}
	err := group.Wait()
	u.planes, u.others = all[:u.controlPlanes], all[u.controlPlanes:]
	return err
}

// init makes the control plane, unless an earlier run did.
func (u *upRun) init(ctx context.Context) error {
	first := u.planes[0]
	if _, err := first.Output(ctx, "kubectl", "get", "--raw", "/readyz", "--request-timeout=2s"); err == nil {
		return nil
	}
	endpoint := ""
	if u.controlPlanes > 1 {
		endpoint = first.IP() + ":6443"
	}
	config := first.InitConfig(u.lab.KubernetesVersion(), endpoint)
	if err := first.WriteFile(configPath, []byte(config), 0o600); err != nil {
		return err
	}
	return u.tell(ctx, first, "init", "--config="+configPath)
}

// join adds the nodes that aren't in the cluster yet.
func (u *upRun) join(ctx context.Context) error {
	for i, n := range slices.Concat(u.planes[1:], u.others) {
		if _, err := n.ReadFile("/etc/kubernetes/kubelet.conf"); err == nil {
			continue
		}
		args, err := u.joinArgs(ctx, i < u.controlPlanes-1)
		if err != nil {
			return err
		}
		if err := u.tell(ctx, n, args...); err != nil {
			return err
		}
	}
	return nil
}

// joinArgs asks the first node for a join command.
func (u *upRun) joinArgs(ctx context.Context, controlPlane bool) ([]string, error) {
	first := u.planes[0]
	line, err := first.Output(ctx, u.tool, "token", "create", "--print-join-command")
	if err != nil {
		return nil, err
	}
	words := strings.Fields(line)
	if len(words) < 2 {
		return nil, errors.Errorf("%s printed no join command: %q", u.tool, line)
	}
	args := append(words[1:], "--ignore-preflight-errors="+nodes.IgnorePreflightErrors)
	if !controlPlane {
		return args, nil
	}
	out, err := first.Output(ctx, u.tool, "init", "phase", "upload-certs", "--upload-certs")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return append(args, "--control-plane", "--certificate-key="+lines[len(lines)-1]), nil
}

// tell runs the tool in a node, as a step. It shows the tool's output if it fails.
func (u *upRun) tell(ctx context.Context, n *nodes.Node, args ...string) error {
	var said bytes.Buffer
	doing := fmt.Sprintf("%s %s on %s", u.tool, args[0], n.Name())
	return u.log.Do(doing, func() error {
		err := n.Exec(ctx, nodes.Cmd{Args: append([]string{u.tool}, args...), Stdout: &said, Stderr: &said})
		return errors.Wrapf(err, "%s said:\n%s\n", doing, said.String())
	})
}

// ready waits for all nodes and the system's Pods.
func (u *upRun) ready(ctx context.Context) error {
	timeout := "--timeout=" + readyDeadline.String()
	for _, what := range []string{
		"wait nodes --all --for=condition=Ready",
		"rollout status daemonset/kube-proxy --namespace=kube-system",
		"rollout status deployment/coredns --namespace=kube-system",
		"wait pods --all --for=condition=Ready --namespace=kube-system",
	} {
		args := append([]string{"kubectl", "--kubeconfig=" + adminPath, timeout}, strings.Fields(what)...)
		if _, err := u.planes[0].Output(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

// help prints the next commands to try.
func (u *upRun) help(what, example string) {
	name := ""
	if u.lab.Name() != "slipway" {
		name = " --name " + u.lab.Name()
	}
	command, rest, _ := strings.Cut(example, " ")
	fmt.Printf("\n%s: %d control plane(s), %d worker(s). Try\n\n  go run ./test/lab %s%s %s\n  go run ./test/lab down%s\n",
		what, u.controlPlanes, u.workers, command, name, rest, name)
}
