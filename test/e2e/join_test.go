// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
	"github.com/slipway-k8s/slipway/test/tier"
)

// TestJoinPeer joins a worker to kubeadm's cluster.
func TestJoinPeer(t *testing.T) {
	tier.OnlyFull(t, "TestWorkers")
	m := boot(t)
	m.write("/root/peer.yaml", document("", podSubnet))
	m.hasKubeadm()
	m.must("kubeadm", "init", "--config", "/root/peer.yaml")
	args := strings.Fields(m.must("kubeadm", "token", "create", "--print-join-command"))[2:]
	args = append(args, "--ignore-preflight-errors="+nodes.IgnorePreflightErrors)
	w := m.another("worker-1")
	m.join(w, append([]string{"slipway", "join"}, args...)...)
	m.ready(w.node.Name())
	w.rotatableKubelet()
	w.secondJoinChangesNothing(args)
}

// another boots another node in m's lab, whose Pods get addresses from podSubnets.
func (m machine) another(name string, podSubnets ...string) machine {
	m.Helper()
	node, err := openLab(m.T, m.node.LabName(), "").StartNode(m.Context(), nodes.NodeSpec{Name: name, PodSubnets: podSubnets})
	if err != nil {
		m.Fatal(err)
	}
	return machine{m.T, node}
}

// join runs a join on w, and logs how long it took until the node was registered.
func (m machine) join(w machine, args ...string) {
	m.Helper()
	started := time.Now()
	ended := make(chan error, 1)
	go func() {
		out, err := w.try(args...)
		if err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
		ended <- err
	}()
	var registered time.Duration
	for registered == 0 {
		select {
		case err := <-ended:
			if err != nil {
				m.Fatalf("%s join on %s: %v", args[0], w.node.Name(), err)
			}
			ended <- nil
		default:
		}
		if _, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "node", w.node.Name()); err == nil {
			registered = time.Since(started)
		}
		if time.Since(started) > readyLimit {
			m.Fatalf("%s is not registered", w.node.Name())
		}
	}
	if err := <-ended; err != nil {
		m.Fatalf("%s join on %s: %v", args[0], w.node.Name(), err)
	}
	m.Logf("%s join on %s: registered after %.2fs, ended after %.2fs", args[0], w.node.Name(), registered.Seconds(), time.Since(started).Seconds())
}

func (m machine) ready(name string) {
	m.Helper()
	m.eventually(name+" Ready", readyLimit, func() error {
		out, err := m.try("kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "node", name,
			"-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
		if err != nil || out != "True" {
			return fmt.Errorf("Ready is %q: %v", out, err)
		}
		return nil
	})
}

func (m machine) rotatableKubelet() {
	m.Helper()
	if conf := m.must("cat", "/etc/kubernetes/kubelet.conf"); !strings.Contains(conf, "/var/lib/kubelet/pki/kubelet-client-current.pem") {
		m.Errorf("%s: kubelet.conf does not point at the certificate that the kubelet rotates", m.node.Name())
	}
}

// listing lists a join's files with their modes.
func (m machine) listing() string {
	m.Helper()
	return m.must("find", "/etc/kubernetes", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml",
		"/var/lib/kubelet/kubeadm-flags.env", "-printf", `%p %m\n`)
}

// everything lists join's directories. A fresh host may not have them.
func (m machine) everything() string {
	out, _ := m.try("find", "/etc/kubernetes", "/var/lib/kubelet")
	return out
}

func (m machine) refusesWrongPin(args []string) {
	m.Helper()
	before := m.everything()
	wrong := slices.Clone(args)
	wrong[slices.Index(wrong, "--discovery-token-ca-cert-hash")+1] = "sha256:" + strings.Repeat("0", 64)
	out, err := m.try(append([]string{"slipway", "join"}, wrong...)...)
	if err == nil || !strings.Contains(out, "given hashes") {
		m.Errorf("a wrong pin: %v\n%s", err, out)
	}
	if after := m.everything(); after != before {
		m.Errorf("a refused join wrote:\n%s", after)
	}
}

func (m machine) planWritesNothing(args []string) {
	m.Helper()
	before := m.everything()
	plan := m.must(append([]string{"slipway", "join", "--dry-run"}, args...)...)
	for _, step := range []string{
		"write /etc/kubernetes/pki/ca.crt 0644", "write /etc/kubernetes/bootstrap-kubelet.conf 0600 (secret, not shown)",
		"write /var/lib/kubelet/config.yaml 0600", "start unit kubelet.service", "remove /etc/kubernetes/bootstrap-kubelet.conf",
	} {
		if !strings.Contains(plan, step) {
			m.Errorf("the plan lacks %q:\n%s", step, plan)
		}
	}
	if strings.Contains(plan, args[slices.Index(args, "--token")+1]) {
		m.Error("the plan shows the token")
	}
	if after := m.everything(); after != before {
		m.Errorf("a dry run wrote:\n%s", after)
	}
}

// sameFilesAs compares with a node that kubeadm joined: the files and modes must be the same, except for the differences in the
// README.
func (m machine) sameFilesAs(peer machine) {
	m.Helper()
	want := strings.NewReplacer("config.yaml 644", "config.yaml 600", "kubeadm-flags.env 644", "kubeadm-flags.env 600").Replace(peer.listing())
	got := m.listing()
	sorted := func(s string) []string { return slices.Sorted(strings.SplitSeq(s, "\n")) }
	if !slices.Equal(sorted(got), sorted(want)) {
		m.Errorf("files of slipway's join:\n%s\nof kubeadm's:\n%s", got, want)
	}
	for _, path := range []string{"/etc/kubernetes/pki/ca.crt", "/var/lib/kubelet/config.yaml", "/var/lib/kubelet/instance-config.yaml", "/var/lib/kubelet/kubeadm-flags.env"} {
		if a, b := m.must("cat", path), peer.must("cat", path); a != b {
			m.Errorf("%s: slipway's\n%s\nkubeadm's\n%s", path, a, b)
		}
	}
}

// secondJoinChangesNothing joins with a token that the cluster doesn't know: tokens live for a day, nodes for years.
func (m machine) secondJoinChangesNothing(args []string) {
	m.Helper()
	args = slices.Clone(args)
	args[slices.Index(args, "--token")+1] = "zzzzzz.zzzzzzzzzzzzzzzz"
	pid := m.must("systemctl", "show", "-p", "MainPID", "kubelet")
	before := m.must("find", "/etc/kubernetes", "-printf", `%p %m %T@\n`)
	out, err := m.try(append([]string{"slipway", "join"}, args...)...)
	if err != nil || !strings.Contains(out, "already node "+m.node.Name()) {
		m.Errorf("a second join: %v\n%s", err, out)
	}
	if m.must("systemctl", "show", "-p", "MainPID", "kubelet") != pid || m.must("find", "/etc/kubernetes", "-printf", `%p %m %T@\n`) != before {
		m.Errorf("a second join changed something:\n%s", out)
	}
}

// comesBack deletes w's Node while its kubelet runs, and joins it again.
func (m machine) comesBack(w machine, args []string) {
	m.Helper()
	m.kubectl("delete", "node", w.node.Name())
	out, err := w.try(append([]string{"slipway", "join"}, args...)...)
	if err != nil || !strings.Contains(out, "Restarting the kubelet") {
		m.Errorf("a join after the Node was deleted: %v\n%s", err, out)
	}
	m.kubectl("get", "node", w.node.Name())
	m.ready(w.node.Name())
}

func (m machine) nameOfAnotherIsRefused(args []string) {
	m.Helper()
	out, err := m.try(append([]string{"slipway", "join", "--node-name=worker-2"}, args...)...)
	if err == nil || !strings.Contains(out, `"worker-2"`) {
		m.Errorf("the name of another node: %v\n%s", err, out)
	}
}
