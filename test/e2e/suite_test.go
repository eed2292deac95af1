// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

// Package e2e runs slipway on real nodes: systemd, containerd, a kubelet, and its control plane. It needs root and the lab's
// parts.
package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/clients"
	"github.com/slipway-k8s/slipway/test/joiners"
	"github.com/slipway-k8s/slipway/test/kill"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// labPrefix is the prefix of this suite's labs. Each test has its own lab, so that tests run side by side and each node is cp-1
// with the same address. To run the suite twice at a time on one machine, give each run its own prefix.
var labPrefix = cmp.Or(os.Getenv("SLIPWAY_E2E_PREFIX"), "e2e-")

// program is the slipway under test: bin/slipway, or another build, such as an older one to show that a test fails on it.
var program = os.Getenv("SLIPWAY_E2E_PROGRAM")

func TestMain(m *testing.M) {
	kill.Play()
	joiners.Play() // doesn't return in the copy that runs on a node
	clients.Play() // nor does this
	os.Exit(run(m))
}

func run(m *testing.M) int {
	ctx := context.Background()
	if err := errors.Join(prepare(ctx), settleKernel()); err != nil {
		fmt.Fprintf(os.Stderr, "the real-cluster suite cannot run: %v\n", err)
		return 1
	}
	return m.Run()
}

// prepare removes an interrupted run's labs.
func prepare(ctx context.Context) error {
	names, err := nodes.Names("")
	if err != nil {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, labPrefix) {
			continue
		}
		left, err := nodes.Open(nodes.Options{Name: name})
		if err != nil {
			return err
		}
		if err := left.Down(ctx); err != nil {
			return err
		}
	}
	return nil
}

// settleKernel sets the kernel parameters that every kubelet sets. They aren't a namespace's: all nodes share them, and on a machine
// that has just booted, each node's preparation and reset would change them below the others.
func settleKernel() error {
	for name, value := range preflight.KubeletParameters() {
		if err := os.WriteFile(host.ProcSys+name, []byte(value), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// labName returns a test's own lab name, short enough for a lab.
func labName(t *testing.T) string {
	return labPrefix + strings.ReplaceAll(strings.ToLower(strings.NewReplacer("TestInit", "", "Test", "").Replace(t.Name())), "/", "-")
}

// machine is one node, with methods for the tests' actions on it.
type machine struct {
	*testing.T
	node *nodes.Node
}

// openLab opens a test's lab. The lab builds a missing part once a test asks for it.
func openLab(t *testing.T, name, kubernetes string) *nodes.Lab {
	t.Helper()
	lab, err := nodes.Open(nodes.Options{Name: name, Slipway: program, Kubernetes: kubernetes, BuildLog: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// boot starts a node like a freshly installed one. Its network plugin gives Pods addresses from podSubnets.
func boot(t *testing.T, podSubnets ...string) machine {
	t.Helper()
	beside(t, nodes.NodeSpec{})
	return bootBeside(t, podSubnets...)
}

// bootBeside is boot for another lab of a test that already has its room.
func bootBeside(t *testing.T, podSubnets ...string) machine {
	t.Helper()
	started := time.Now()
	lab := openLab(t, labName(t), "")
	downAfter(t, lab)
	node, err := lab.StartNode(t.Context(), nodes.NodeSpec{Name: "cp-1", PodSubnets: podSubnets})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("booted in %.1fs", time.Since(started).Seconds())
	m := machine{t, node}
	t.Cleanup(func() {
		if t.Failed() {
			m.explain()
		}
	})
	return m
}

// downAfter takes a test's lab down at its end, and records its nodes' processor time.
func downAfter(t *testing.T, lab *nodes.Lab) {
	t.Cleanup(func() {
		used, err := lab.ProcessorTime()
		if err != nil {
			t.Error(err)
		}
		t.Attr("cpu", fmt.Sprintf("%.1f", used.Seconds()))
		if err := lab.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// explain prints just enough to understand a failure: some CI systems keep only the end of a long log, and the failure itself
// must be in there.
func (m machine) explain() {
	for _, args := range [][]string{
		{"systemctl", "is-active", "kubelet", "containerd"},
		{"journalctl", "--no-pager", "-o", "cat", "-u", "kubelet", "-n", "12"},
		{"slipway", "diagnose"},
		{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "pods,nodes", "-A"},
	} {
		out, _ := m.try(args...)
		m.Logf("$ %s\n%s", strings.Join(args, " "), longLine.ReplaceAllString(out, "$1…"))
	}
}

// longLine matches a line whose start is enough.
var longLine = regexp.MustCompile(`(?m)^(.{200}).+$`)

// hasKubeadm installs kubeadm, which nodes don't have by default.
func (m machine) hasKubeadm() {
	m.Helper()
	if err := m.node.Install(m.Context(), newestKubernetes, nodes.Kubeadm); err != nil {
		m.Fatal(err)
	}
}

// commandLimit is longer than the limits of the commands: `init` and `upgrade` have several, of minutes each.
const commandLimit = 20 * time.Minute

// try runs a command on the node and returns all its output.
func (m machine) try(args ...string) (string, error) {
	var out bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	err := m.node.Exec(ctx, nodes.Cmd{Args: args, Stdout: &out, Stderr: &out})
	return out.String(), err
}

// must runs a command that must succeed, and returns its standard output.
func (m machine) must(args ...string) string {
	m.Helper()
	out, errs, err := m.output(args)
	if err != nil {
		m.Fatalf("%s: %v\n%s%s", strings.Join(args, " "), err, out, errs)
	}
	return out
}

func (m machine) output(args []string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(m.Context(), commandLimit)
	defer cancel()
	err = m.node.Exec(ctx, nodes.Cmd{Args: args, Stdout: &out, Stderr: &errs})
	return out.String(), errs.String(), err
}

func (m machine) write(path, content string) {
	m.Helper()
	if err := m.node.WriteFile(path, []byte(content), 0o600); err != nil {
		m.Fatal(err)
	}
}

// init runs slipway init with a configuration and returns standard output.
func (m machine) init(config string, more ...string) string {
	m.Helper()
	m.write("/root/slipway.yaml", config)
	started := time.Now()
	out := m.must(append([]string{"slipway", "init", "--config", "/root/slipway.yaml"}, more...)...)
	m.Logf("init took %.1fs", time.Since(started).Seconds())
	return out
}

// kubectl runs kubectl as administrator, again if etcd has lost the request while it elected a leader.
func (m machine) kubectl(args ...string) string {
	m.Helper()
	command := append([]string{"kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf"}, args...)
	for deadline := time.Now().Add(readyLimit); ; time.Sleep(time.Second) {
		out, errs, err := m.output(command)
		if err == nil {
			return out
		}
		if !strings.Contains(errs, "etcdserver: ") || time.Now().After(deadline) {
			m.Fatalf("%s: %v\n%s%s", strings.Join(command, " "), err, out, errs)
		}
	}
}

// create applies a file on the node to the cluster. On a busy machine, etcd may lose a request while it elects a leader.
func (m machine) create(path string) {
	m.Helper()
	m.eventually(path+" to be applied", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig=/etc/kubernetes/admin.conf", "apply", "-f", path)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// get reads an object into a generic value.
func (m machine) get(args ...string) map[string]any {
	m.Helper()
	var obj map[string]any
	text := m.kubectl(append([]string{"get", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(text), &obj); err != nil {
		m.Fatal(err)
	}
	return obj
}

// eventually waits for a condition, checking it once a second: on a busy machine, kubectl takes much of that to start.
func (m machine) eventually(what string, limit time.Duration, ok func() error) {
	m.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(time.Second)
	}
}
