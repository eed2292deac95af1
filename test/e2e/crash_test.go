// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/intact"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// instant says when to kill a run: some time after it printed a line.
type instant struct {
	line  string // part of the line
	delay time.Duration
}

// in reports whether the output contains the instant's line.
func (i instant) in(said string) bool {
	first, second, _ := strings.Cut(i.line, " … ")
	for line := range strings.Lines(said) {
		if _, rest, found := strings.Cut(line, first); found && strings.Contains(rest, second) {
			return true
		}
	}
	return false
}

func (i instant) String() string { return fmt.Sprintf("%s after %q", i.delay, i.line) }

// initInstants are 20 instants spread over init, in order. The add-on's line appears only on a host on which init has begun
// before. TestCrashNode has one more.
var initInstants = []instant{
	{"[preflight] Checking", 0},
	{"[preflight] Pulling", 0},
	{`[certs] … "ca"`, 0},
	{`[certs] … "ca"`, 40 * time.Millisecond},
	{`[certs] … "etcd/ca"`, 0},
	{"[kubeconfig] Writing /etc/kubernetes/kubelet.conf", 0},
	{"[kubelet-start] Stopping", 0},
	{"[kubelet-start] Writing /var/lib/kubelet/config.yaml", 0},
	{"[kubelet-start] Starting", 0},
	{"[kubelet-start] Waiting", 100 * time.Millisecond},
	{"[etcd] Writing /etc/kubernetes/manifests/", 0},
	{"[control-plane] Writing /etc/kubernetes/manifests/", 0},
	{"[wait-control-plane] Waiting", 200 * time.Millisecond},
	{"[control-plane] Writing /etc/kubernetes/manifests/kube-scheduler.yaml", 500 * time.Millisecond},
	{"[wait-control-plane] kube-apiserver", 0},
	{"[upload-config] … ClusterConfiguration", 0},
	{"[mark-control-plane] Marking", 20 * time.Millisecond},
	{"[bootstrap-token] Allowing", 10 * time.Millisecond},
	{"[addon] … CoreDNS", 20 * time.Millisecond},
	{"[kubelet-finalize] Pointing", 0},
}

// TestCrashInit kills one command again and again, each time at a later instant, and lets it finish. Each of six hosts gets every
// sixth instant, so that each run gets past the steps that the one before had begun; the core tier has one of these hosts. On a
// busy machine a run may finish before it's killed, but this must be rare.
func TestCrashInit(t *testing.T) {
	t.Parallel()
	const hosts = 6
	var runs, late atomic.Int32
	t.Cleanup(func() {
		if late.Load() > (runs.Load()+1)/4 {
			t.Errorf("%d of %d runs finished before they were killed", late.Load(), runs.Load())
		}
	})
	for _, host := range tier.Sample(t, 1, hosts) {
		t.Run(fmt.Sprint(host+1), func(t *testing.T) {
			m := boot(t)
			config := document("", podSubnet)
			m.write("/root/slipway.yaml", config)
			init := chain{machine: m, command: []string{"slipway", "init", "--config", "/root/slipway.yaml"}}
			for i := host; i < len(initInstants); i += hosts {
				runs.Add(1)
				if !init.killedAt(initInstants[i]) {
					late.Add(1)
					m.Logf("it ended before %s", initInstants[i])
				}
			}
			m.init(config)
			m.isWhole()
			m.thirdRunWritesNothing(init.command...)
			m.healthy(everything)
			m.secondInitChangesNothing(config)
		})
	}
}

// TestCrashNode kills a whole node in the middle of init, boots it, and runs the same command again, then one with another
// configuration.
func TestCrashNode(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	m := boot(t)
	config := document("", podSubnet)
	m.write("/root/slipway.yaml", config)
	at := instant{"[wait-control-plane] Waiting", time.Second}
	if !m.killedAt(at, m.node.Kill, "slipway", "init", "--config", "/root/slipway.yaml") {
		m.Fatalf("it ended before %s", at)
	}
	if err := m.node.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.init(config)
	m.isWhole()
	m.healthy(everything)
	m.secondInitChangesNothing(config)
	m.otherConfigurationIsRefused()
}

// otherConfigurationIsRefused asks for other networks, and checks that init names every difference and changes nothing.
func (m machine) otherConfigurationIsRefused() {
	m.Helper()
	before := m.state()
	m.write("/root/other.yaml", document("", "networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.100.0.0/16}"))
	out, err := m.try("slipway", "init", "--config", "/root/other.yaml")
	if err == nil {
		m.Errorf("the other configuration was not refused:\n%s", out)
	}
	fact.In(m, out, "/etc/kubernetes/manifests/kube-apiserver.yaml", "--service-cluster-ip-range=10.96.0.0/12", "ConfigMap kube-system/kubeadm-config",
		"serviceSubnet: 10.96.0.0/12", "serviceSubnet: 10.100.0.0/16", "/var/lib/kubelet/config.yaml", "/etc/kubernetes/pki/apiserver.crt")
	if diff := cmp.Diff(before, m.state()); diff != "" {
		m.Errorf("the refused run changed something (-before +after):\n%s", diff)
	}
}

// killedAt runs a command until an instant, calls end, and kills the command with SIGKILL if it still runs. It reports whether
// the command was killed before it ended.
func (m machine) killedAt(at instant, end func(context.Context) error, args ...string) bool {
	m.Helper()
	said, err := m.runUntil(at, end, args...)
	if !at.in(said) {
		m.Fatalf("it ended before %s (%v):\n%s", at, err, said)
	}
	return err != nil
}

// chain runs a command again and again on a machine, and kills it each time at a later instant.
type chain struct {
	machine
	command []string
	said    string // all runs' output so far
}

// killedAt is like machine's. But a run that was killed late may have done the next run's step already: then the instant's line
// may be in the earlier output.
func (c *chain) killedAt(at instant) bool {
	c.Helper()
	said, err := c.runUntil(at, nothingMore, c.command...)
	c.said += said
	if !at.in(c.said) || err != nil && !at.in(said) {
		c.Fatalf("it ended before %s (%v):\n%s", at, err, said)
	}
	return err != nil
}

// runUntil runs a command until an instant, calls end, and kills the command with SIGKILL if it still runs. It doesn't call end
// if the command ends earlier. It returns the command's output and its error.
func (m machine) runUntil(at instant, end func(context.Context) error, args ...string) (string, error) {
	m.Helper()
	read, write := io.Pipe()
	ctx, cancel := context.WithTimeout(m.Context(), readyLimit)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- m.node.Exec(ctx, nodes.Cmd{Args: args, Stderr: write})
		write.Close()
	}()
	var said bytes.Buffer
	output := io.TeeReader(read, &said)
	lines := bufio.NewScanner(output)
	reached := false
	for !reached && lines.Scan() {
		reached = at.in(lines.Text())
	}
	rest := make(chan struct{})
	go func() { // so that the command never blocks on its output
		defer close(rest)
		_, _ = io.Copy(io.Discard, output)
	}()
	if reached {
		time.Sleep(at.delay) // the instant may be after the line
		if err := end(ctx); err != nil {
			m.Fatal(err)
		}
	}
	cancel()
	err := <-ended
	<-rest
	return said.String(), err
}

// isWhole checks the files without Slipway's help: the reference's modes, no leftovers, and keys that match their certificates.
func (m machine) isWhole() {
	m.Helper()
	m.filesHaveReferenceModes()
	root := m.TempDir()
	if err := os.Mkdir(filepath.Join(root, "etc"), 0o755); err != nil {
		m.Fatal(err)
	}
	if err := m.node.CopyOut("/etc/kubernetes", filepath.Join(root, "etc/kubernetes")); err != nil {
		m.Fatal(err)
	}
	if err := intact.Check(root); err != nil {
		m.Error(err)
	}
	if out := m.must("find", "/etc/kubernetes", "/var/lib/kubelet", "-maxdepth", "3", "-name", ".*slipway-*"); out != "" {
		m.Errorf("leftover files:\n%s", out)
	}
}

// thirdRunWritesNothing compares the files' times and modes before and after.
func (m machine) thirdRunWritesNothing(args ...string) {
	m.Helper()
	files := []string{"find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml",
		"/var/lib/kubelet/kubeadm-flags.env", "-printf", `%p %M %U %T@\n`}
	before := m.must(files...)
	m.must(args...)
	if after := m.must(files...); after != before {
		m.Errorf("the third run changed files, before:\n%s\nafter:\n%s", before, after)
	}
}

// nothingMore is for runs that only kill the process, not the node.
func nothingMore(context.Context) error { return nil }

// joinInstants are spread over the join of a control plane. Those of a round are in order, and seconds apart, so that each run
// gets past the steps that the one before had begun.
var joinInstants = [][]instant{
	{
		{"[preflight] Checking", 0},
		{"[kubelet-start] Starting", 20 * time.Millisecond},
		{"Adding https://", 0},
		{"Waiting … etcd", 500 * time.Millisecond},
	}, {
		{"[kubelet-start] Stopping", 0},
		{"Writing /etc/kubernetes/manifests/", 0},
		{"Adding https://", 100 * time.Millisecond},
		{"etcd has 2 members", 0},
	}, {
		{`Generating … "apiserver"`, 0},
		{"Waiting … certificate", 100 * time.Millisecond},
	},
}

// TestCrashJoin kills the join of a control plane again and again, each time at a later instant of a round, and lets it finish.
// Between rounds it resets the node.
func TestCrashJoin(t *testing.T) {
	tier.OnlyFull(t, "TestCrashInit")
	cp1 := boot(t)
	cp2 := cp1.another("cp-2")
	cp1.knowsEndpoint([]machine{cp1, cp2})
	cp2.knowsEndpoint([]machine{cp1, cp2})
	cp1.init(document("", podSubnet+"\ncontrolPlaneEndpoint: "+sharedEndpoint+":6443"), "--upload-certs")
	_, args := cp1.joinCommands()
	command := append([]string{"slipway", "join"}, args...)
	for i, round := range joinInstants {
		if i > 0 {
			cp2.reset()
			cp1.hasVoters(cp1)
			cp1.kubectl("delete", "node", "cp-2")
		}
		for _, at := range round {
			if !cp2.killedAt(at, nothingMore, command...) {
				t.Fatalf("the join finished before %s", at)
			}
		}
		cp2.runs("slipway", "join", args)
		cp1.hasVoters(cp1, cp2)
		cp2.isControlPlaneLike(cp1)
		cp2.thirdRunWritesNothing(command...)
		if t.Failed() {
			t.Fatalf("failed after round %d", i+1)
		}
	}
	cp1.twoPlanesWork()
}

// twoPlanesWork is like healthy, for a cluster of two control planes.
func (m machine) twoPlanesWork() {
	m.Helper()
	want := everything
	want.pods = slices.Concat(want.pods, []string{"etcd-", "kube-apiserver-", "kube-controller-manager-", "kube-proxy-", "kube-scheduler-"})
	m.ready("cp-2")
	m.healthy(want)
}
