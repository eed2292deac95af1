// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
)

const (
	packetsEnv  = "SLIPWAY_PACKETS_STAGE"
	remoteEtcd  = "198.51.100.20"
	remoteNames = "198.51.100.53"
	remoteAPI   = "198.51.100.60"
)

// asksByDesign reports whether a command's dry run reads the cluster it doesn't change: plans for tokens depend on the existing
// tokens, plans for an upgrade on the cluster's versions, plans for another configuration on the stored one, and plans for etcd's
// members, or a lost node's, on their state.
func asksByDesign(command string) bool {
	for _, group := range []string{"slipway upgrade", "slipway token", "slipway etcd", "slipway reset node", "slipway reconfigure"} {
		if strings.HasPrefix(command, group) {
			return command != "slipway token generate"
		}
	}
	return false
}

// TestPlansSendNothing runs every command with --dry-run, as a process in a network namespace with a way out and a resolver, and
// captures all packets there, even to loopback addresses: a plan sends none. In the end, real runs ask the same etcd, resolver
// and API server, so that a blind capture would fail the test.
func TestPlansSendNothing(t *testing.T) {
	if os.Getenv(packetsEnv) == "" {
		if os.Geteuid() != 0 {
			t.Skip("only root may make a network namespace and capture its packets")
		}
		if raceDetector {
			t.Skip("`make unit` runs it without the race detector, too")
		}
		reexec(t, []string{packetsEnv + "=1"}, unix.CLONE_NEWNS|unix.CLONE_NEWNET)
		return
	}
	ownDirectories(t)
	net := newWatchedNetwork(t)
	planInputs(t)
	for _, host := range []string{"a new host", "a control plane"} {
		if host == "a control plane" {
			for _, phase := range []string{"certs all", "kubeconfig all", "control-plane all", "etcd local"} {
				net.mustRun(t, append(strings.Fields("init phase "+phase), "--config=/tmp/init-local.yaml")...)
			}
			net.mustRun(t, "init", "phase", "kubeconfig", "kubelet", "--config=/tmp/init-local.yaml")
			net.drain(t)
		}
		for _, args := range plans() {
			t.Run(host+"/"+strings.Join(args, " "), func(t *testing.T) {
				out, err := net.run(t, args...)
				if sent := net.drain(t); len(sent) > 0 {
					t.Errorf("it sent %q; output:\n%s", sent, out)
				}
				// A phase alone may miss the results of the phases before it.
				if err != nil && args[1] != "phase" && host == "a new host" {
					t.Errorf("%v:\n%s", err, out)
				}
			})
		}
	}
	for _, tt := range []struct{ to, command string }{
		{remoteEtcd + ":2379", "preflight init --config=/tmp/init-external.yaml"},
		{remoteNames + ":53", "preflight init --config=/tmp/init-name.yaml"},
		{remoteAPI + ":6443", "preflight join --config=/tmp/join-worker.yaml"},
	} {
		net.expect(t, tt.to, strings.Fields(tt.command)...)
	}
}

// plans lists the command lines of all dry runs: each workflow with each kind of configuration, and every phase alone.
func plans() [][]string {
	inputs := map[string][]string{
		"init": {"init-local", "init-external", "init-name", "init-label"},
		"join": {"join-worker", "join-plane", "join-file"},
	}
	var list [][]string
	walkCommands(newRoot("slipway", cli.Streams{}, nil), func(cmd *cobra.Command) {
		if cmd.Flag("dry-run") == nil || !cmd.Runnable() || asksByDesign(cmd.CommandPath()) {
			return
		}
		args := append(strings.Fields(cmd.CommandPath())[1:], "--dry-run")
		if cmd.Flags().Lookup("ignore-preflight-errors") != nil {
			args = append(args, "--ignore-preflight-errors=all")
		}
		files := inputs[args[0]]
		switch {
		case len(files) == 0 || cmd.Flags().Lookup("config") == nil:
			list = append(list, args)
			return
		case args[1] == "phase":
			files = files[:2]
		}
		for _, file := range files {
			list = append(list, append(slices.Clone(args), "--config=/tmp/"+file+".yaml"))
		}
	})
	return list
}

func planInputs(t *testing.T) {
	t.Helper()
	const head = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: "
	const registration = "nodeRegistration: {name: cp-1, criSocket: \"unix:///run/x.sock\"}\n"
	initial := head + "InitConfiguration\n" + registration + "---\n" + head + "ClusterConfiguration\n"
	for name, cluster := range map[string]string{
		"local":    "kubernetesVersion: v1.37.2\n",
		"external": "etcd: {external: {endpoints: [\"http://" + remoteEtcd + ":2379\"]}}\n",
		"name":     "controlPlaneEndpoint: lb.example.org:6443\n",
		"label":    "kubernetesVersion: stable-1\n",
	} {
		put(t, "/tmp/init-"+name+".yaml", initial+cluster, 0o600)
	}
	token := "discovery: {bootstrapToken: {apiServerEndpoint: \"" + remoteAPI + ":6443\", token: abcdef.0123456789abcdef, unsafeSkipCAVerification: true}}\n"
	joining := head + "JoinConfiguration\n" + registration
	put(t, "/tmp/join-worker.yaml", joining+token, 0o600)
	put(t, "/tmp/join-plane.yaml", joining+token+"controlPlane: {certificateKey: "+strings.Repeat("ab", 32)+"}\n", 0o600)
	put(t, "/tmp/join-file.yaml", joining+"discovery: {tlsBootstrapToken: abcdef.0123456789abcdef, file: {kubeConfigPath: \"https://"+remoteAPI+"/discovery.conf\"}}\n", 0o600)
}

// watchedNetwork captures every packet of this process's network namespace.
type watchedNetwork struct{ capture int }

// newWatchedNetwork gives loopback, the only interface, an address, and leads the default routes of both families there: every
// packet sent anywhere is seen, and gets no answer. It needs no kernel module, and the kernel sends nothing there by itself.
func newWatchedNetwork(t *testing.T) *watchedNetwork {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	must(t, err)
	must(t, netlink.LinkSetUp(lo))
	addr, err := netlink.ParseAddr("192.0.2.11/32")
	must(t, err)
	must(t, netlink.AddrAdd(lo, addr))
	for _, any := range []string{"0.0.0.0/0", "::/0"} {
		_, all, err := net.ParseCIDR(any)
		must(t, err)
		err = netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: all})
		if err != nil && all.IP.To4() != nil { // the kernel may have no IPv6
			t.Fatal(err)
		}
	}
	put(t, "/etc/resolv.conf", "nameserver "+remoteNames+"\n", 0o644)
	// The kernel wants the number in network byte order.
	all := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(all))
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &watchedNetwork{fd}
}

func (n *watchedNetwork) command(t *testing.T, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Args[0], cmd.Env = "slipway", []string{"PATH=/usr/sbin:/usr/bin", "TMPDIR=/tmp", "HOME=/root"}
	return cmd
}

func (n *watchedNetwork) run(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	return n.command(t, args...).CombinedOutput()
}

func (n *watchedNetwork) mustRun(t *testing.T, args ...string) {
	t.Helper()
	if out, err := n.run(t, args...); err != nil {
		t.Fatalf("%q: %v:\n%s", args, err, out)
	}
}

// drain returns the destinations of all packets captured since its last call. The kernel hands over a copy before a packet
// leaves, so a process that has ended has no packets still to come.
func (n *watchedNetwork) drain(t *testing.T) []string {
	t.Helper()
	var to []string
	packet := make([]byte, 1<<16)
	for {
		size, from, err := unix.Recvfrom(n.capture, packet, 0)
		if err == unix.EAGAIN {
			return to
		}
		must(t, err)
		// Packets on loopback come back: they count once.
		if link, known := from.(*unix.SockaddrLinklayer); known && link.Pkttype == unix.PACKET_OUTGOING {
			to = append(to, destination(packet[:size]))
		}
	}
}

// destination returns the address and port of an IPv4 packet without options, or the bytes of any other packet.
func destination(packet []byte) string {
	const addresses, ports = 16, 22
	if len(packet) < ports+2 || packet[0]>>4 != 4 {
		return fmt.Sprintf("%x", packet)
	}
	return fmt.Sprintf("%s:%d", net.IP(packet[addresses:addresses+4]), int(packet[ports])<<8|int(packet[ports+1]))
}

// expect runs a command until it sends a packet to an address.
func (n *watchedNetwork) expect(t *testing.T, address string, args ...string) {
	t.Helper()
	var said bytes.Buffer
	cmd := n.command(t, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	var sent []string
	for deadline := time.Now().Add(time.Minute); !slices.Contains(sent, address) && time.Now().Before(deadline); {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(n.capture), Events: unix.POLLIN}}, 100); err != unix.EINTR {
			must(t, err)
		}
		sent = append(sent, n.drain(t)...)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if !slices.Contains(sent, address) {
		t.Errorf("%q: no packet to %s was captured, only %q; output:\n%s", args, address, sent, &said)
	}
}
