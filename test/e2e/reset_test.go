// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// host lists the host's files with type, mode and owner. It omits logs, files of this boot, the runtime's images and root's own
// files.
func (m machine) host() []string {
	m.Helper()
	const format = `%p %y %m %U:%G\n`
	args := []string{"find", "/", "-xdev", "("}
	for i, dir := range []string{"/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/var/log", "/var/lib/containerd"} {
		if i > 0 {
			args = append(args, "-o")
		}
		args = append(args, "-path", dir)
	}
	out := m.must(append(args, ")", "-prune", "-o", "-printf", format)...)
	out += m.must("find", "/var/lib/kubelet", "/var/lib/etcd", "-mindepth", "1", "-printf", format)
	return slices.Sorted(strings.Lines(out))
}

// ownFiles lists the host's files, except for those of Pods and of etcd's database, which change while a node runs.
func (m machine) ownFiles() []string {
	m.Helper()
	return slices.DeleteFunc(m.host(), func(line string) bool {
		return slices.ContainsFunc([]string{"/var/lib/kubelet/pods/", "/var/lib/etcd/member/", "/var/lib/cni/"}, func(dir string) bool { return strings.HasPrefix(line, dir) })
	})
}

// isAs compares the files with an earlier listing, except in some directories.
func (m machine) isAs(before []string, but ...string) {
	m.Helper()
	other := func(line string) bool {
		return slices.ContainsFunc(but, func(b string) bool { return strings.HasPrefix(line, b) })
	}
	after := m.host()
	for _, line := range after {
		if !slices.Contains(before, line) && !other(line) {
			m.Errorf("reset left %s", line)
		}
	}
	for _, line := range before {
		if !slices.Contains(after, line) && !other(line) {
			m.Errorf("reset removed or changed %s", line)
		}
	}
	for _, mount := range m.mounts() {
		m.Errorf("reset left mounted: %s", mount)
	}
	if out, err := m.try("systemctl", "is-active", "kubelet"); err == nil {
		m.Errorf("the kubelet is %s", out)
	}
	m.must("systemctl", "is-enabled", "kubelet")
}

// mounts returns the kubelet's mount points.
func (m machine) mounts() []string {
	m.Helper()
	var found []string
	for line := range strings.Lines(m.must("cat", "/proc/self/mountinfo")) {
		if point := strings.Fields(line)[4]; strings.HasPrefix(point, "/var/lib/kubelet/") {
			found = append(found, point)
		}
	}
	return found
}

// hasNoPods checks that the runtime has no container, including any that it's still making or removing and CRI doesn't list.
func (m machine) hasNoPods() {
	m.Helper()
	if out := m.must("ctr", "-n", "k8s.io", "containers", "ls", "-q"); strings.TrimSpace(out) != "" {
		m.Errorf("containers left: %s", out)
	}
}

func (m machine) reset(more ...string) string {
	m.Helper()
	started := time.Now()
	out, err := m.try(append([]string{"slipway", "reset", "--force"}, more...)...)
	if err != nil {
		m.Fatalf("reset %v: %v\n%s", more, err, out)
	}
	m.Logf("reset %v took %.1fs", more, time.Since(started).Seconds())
	return out
}

func (m machine) hasNetwork() {
	m.Helper()
	m.eventually("Pods on the bridge, and kube-proxy's rules", readyLimit, func() error {
		links, rules := m.must("ip", "-o", "link"), m.must("nft", "list", "ruleset")
		if !strings.Contains(links, ": veth") || !strings.Contains(rules, "KUBE-SEP-") {
			return errors.New(links)
		}
		return nil
	})
}

// changesNothingUnless gives reset's question every answer but the right one.
func (m machine) changesNothingUnless(yes string) {
	m.Helper()
	before := m.ownFiles()
	for _, answer := range []string{"", "n\n", "\n", "force\n", "n" + yes + "\n"} {
		var out strings.Builder
		err := m.node.Exec(m.Context(), nodes.Cmd{Args: []string{"slipway", "reset"}, Stdin: strings.NewReader(answer), Stdout: &out, Stderr: &out})
		if err == nil || strings.Contains(out.String(), "Stopping") {
			m.Errorf("answer %q: %v\n%s", answer, err, out.String())
		}
	}
	if diff := cmp.Diff(before, m.ownFiles()); diff != "" {
		m.Errorf("a reset that was not confirmed changed something (-before +after):\n%s", diff)
	}
}

// resetPlanIsTrue checks that the plan has the steps users expect, and that it changes nothing.
func (m machine) resetPlanIsTrue() {
	m.Helper()
	before := m.ownFiles()
	plan := m.must("slipway", "reset", "--dry-run", "--network")
	for _, step := range []string{
		"member https://192.168.99.11:2380", "stop unit kubelet.service", "remove Pod kube-system/etcd-cp-1",
		"unmount /var/lib/kubelet/pods/", "remove directory /etc/kubernetes/pki", "    ca.key", "remove directory /var/lib/etcd", "remove directory /var/lib/kubelet",
		"remove /etc/kubernetes/admin.conf", "table ip nat", "remove network interface cni0",
		"remove directory /var/lib/cni/networks/lab",
	} {
		if !strings.Contains(plan, step) {
			m.Errorf("the plan lacks %q:\n%s", step, plan)
		}
	}
	if diff := cmp.Diff(before, m.ownFiles()); diff != "" {
		m.Errorf("a dry run changed something (-before +after):\n%s", diff)
	}
}

// killedWhileResetting kills resets after ever longer times, and then lets one finish.
func (m machine) killedWhileResetting() {
	m.Helper()
	finished := 0
	for _, after := range []time.Duration{40, 70, 100, 150, 250, 400, 600} {
		ctx, cancel := context.WithTimeout(m.Context(), after*time.Millisecond)
		err := m.node.Exec(ctx, nodes.Cmd{Args: []string{"slipway", "reset", "--force"}, CancelSignal: syscall.SIGKILL})
		if err == nil && ctx.Err() == nil {
			finished++
		}
		cancel()
	}
	m.Logf("%d of 7 resets ended before they were killed", finished)
	m.reset()
}

func (m machine) resetsThoughAllIsDead() {
	m.Helper()
	m.must("systemctl", "stop", "kubelet", "containerd")
	for _, program := range []string{"etcd", "kube-apiserver"} {
		m.must("pkill", "-KILL", "-x", program)
	}
	started := time.Now()
	out := m.reset()
	if took := time.Since(started); took > time.Minute {
		m.Errorf("with everything dead, reset took %s", took)
	}
	fact.In(m, out, "[WARNING]", `member "cp-1"`, "container runtime")
	m.must("systemctl", "start", "containerd")
}

// mountsPrecious puts files below mounts where reset removes things: mounts like the kubelet's, and another kind. The second
// belongs to the node's kube-proxy, because the kubelet removes directories of Pods that have ended.
func (m machine) mountsPrecious(plane machine) []string {
	m.Helper()
	proxy := strings.TrimSpace(plane.kubectl("-n", "kube-system", "get", "pods", "-l", "k8s-app=kube-proxy",
		"--field-selector", "status.phase=Running,spec.nodeName="+m.node.Name(), "-o", "jsonpath={.items[0].metadata.uid}"))
	places := []string{"/var/lib/kubelet/mine", "/var/lib/kubelet/pods/" + proxy + "/volumes/host", "/etc/kubernetes/pki/mine"}
	m.must(append([]string{"mkdir", "-p", "/srv/precious"}, places...)...)
	m.write("/srv/precious/file", "precious\n")
	for _, to := range places {
		m.must("mount", "--bind", "/srv/precious", to)
	}
	m.must("ln", "-s", "/srv/precious", "/etc/kubernetes/pki/link")
	return []string{"/srv/precious/file", "/var/lib/kubelet/mine/file", "/etc/kubernetes/pki/mine/file"}
}

// plantForeignNetwork adds rules and interfaces resembling Kubernetes'.
func (m machine) plantForeignNetwork() {
	m.Helper()
	for _, command := range foreignNetwork {
		m.must(strings.Fields(command)...)
	}
}

var foreignNetwork = []string{
	"iptables -N MINE", "iptables -A MINE -s 192.0.2.7 -j DROP", "iptables -A INPUT -p tcp --dport 9 -j MINE",
	"iptables -t nat -A PREROUTING -d 192.0.2.1 -m comment --comment KUBE-SERVICES -j RETURN",
	"iptables -t nat -N MY-KUBE-CHAIN", "iptables -t nat -A MY-KUBE-CHAIN -s 192.0.2.8 -j RETURN",
	"ip6tables -A FORWARD -s 2001:db8::7 -j DROP",
	"iptables-legacy -N MINE-LEGACY", "iptables-legacy -A INPUT -s 192.0.2.9 -j MINE-LEGACY",
	"iptables-legacy -N KUBE-OLD", "iptables-legacy -A INPUT -m comment --comment portals -j KUBE-OLD", "iptables-legacy -A KUBE-OLD -j RETURN",
	"nft add table inet mine", "nft add chain inet mine KUBE-MINE",
	// In one command, as a kube-proxy that's just starting in another mode removes this table.
	"nft add table ip kube-proxy ; add chain ip kube-proxy services",
	"ip link add br9 type bridge", "ip link add v9 type veth peer name v9p", "ip link set v9 master br9",
	"mkdir -p /var/lib/cni/networks/mine",
}

func (m machine) hasForeignNetworkOnly() {
	m.Helper()
	rules := m.must("nft", "list", "ruleset") + m.must("iptables-save") + m.must("iptables-legacy-save") + m.must("ip6tables-save")
	for _, kept := range []string{
		"-A MINE -s 192.0.2.7/32 -j DROP", "-A INPUT -p tcp -m tcp --dport 9 -j MINE", "-A PREROUTING -d 192.0.2.1/32 -m comment --comment KUBE-SERVICES -j RETURN",
		"-A MY-KUBE-CHAIN -s 192.0.2.8/32 -j RETURN", "-A FORWARD -s 2001:db8::7/128 -j DROP", "-A INPUT -s 192.0.2.9/32 -j MINE-LEGACY",
		"table inet mine", "chain KUBE-MINE",
	} {
		if !strings.Contains(rules, kept) {
			m.Errorf("reset --network removed %q", kept)
		}
	}
	for line := range strings.Lines(rules) {
		ours := strings.Contains(line, "KUBE-") && !strings.Contains(line, "KUBE-MINE") && !strings.Contains(line, "MY-KUBE-CHAIN") && !strings.Contains(line, "--comment KUBE-SERVICES")
		if (ours || strings.Contains(line, "kube-proxy")) && !strings.HasPrefix(line, "#") && !strings.Contains(line, `comment "KUBE-SERVICES"`) {
			m.Errorf("reset --network left %s", line)
		}
	}
	links := m.must("ip", "-o", "link")
	for name, want := range map[string]bool{"br9": true, "v9@": true, "cni0": false, "veth": false} {
		if strings.Contains(links, ": "+name) != want {
			m.Errorf("interface %s exists: %v\n%s", name, !want, links)
		}
	}
	m.must("rmdir", "/var/lib/cni/networks/mine")
	for _, dir := range []string{"/var/lib/cni/networks", "/var/lib/cni"} {
		m.must("rmdir", dir)
	}
	for _, command := range []string{
		"iptables -F", "iptables -X", "iptables -t nat -F", "iptables -t nat -X", "ip6tables -F",
		"iptables-legacy -F", "iptables-legacy -X", "nft delete table inet mine", "ip link del v9", "ip link del br9",
	} {
		m.must(strings.Fields(command)...)
	}
}

// forgets resets a node and deletes it from the cluster: like kubeadm's, a join with the name of a Ready node is refused.
func (m machine) forgets(n machine, reset string) {
	m.Helper()
	n.bash(reset)
	m.kubectl("delete", "node", n.node.Name())
}
