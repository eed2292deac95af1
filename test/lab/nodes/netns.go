// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// bridge connects a lab's nodes.
const bridge = "lab0"

// cgroupName names the lab's cgroup in every hierarchy; its nodes' cgroups are below.
func (l *Lab) cgroupName() string { return "slipway-lab-" + l.options.Name }

// netns names the lab's network namespace, as "ip netns" shows it.
func (l *Lab) netns() string { return "slipway-lab-" + l.options.Name }

func (l *Lab) netnsPath() string { return filepath.Join("/run/netns", l.netns()) }

// ensureNetwork makes the lab's network if it's missing or incomplete: a bridge in a namespace with no other way out. Traffic to
// elsewhere is refused at once, so nothing in a node waits for an answer that can't come.
func (l *Lab) ensureNetwork(ctx context.Context) error {
	unlock, err := filelock.Take(ctx, filepath.Join(l.dir, ".network.lock"), nil)
	if err != nil {
		return err
	}
	defer unlock()
	if ip(ctx, "-n", l.netns(), "link", "set", bridge, "up") == nil {
		return nil
	}
	if err := l.removeNetwork(ctx); err != nil {
		return err
	}
	if err := ip(ctx, "netns", "add", l.netns()); err != nil {
		return err
	}
	return thread.Do(func() error {
		if err := thread.EnterNet(l.netnsPath()); err != nil {
			return err
		}
		return configureNetwork(ctx)
	})
}

// configureNetwork fills the network namespace of the calling thread. The bridge gets its name last, as a mark that the network
// is complete.
func configureNetwork(ctx context.Context) error {
	for name, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1", // only a router answers that there's no route
		"ipv4/icmp_ratelimit": "0", "ipv6/icmp/ratelimit": "0", // and it must do so every time
	} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil {
			return errors.Wrap(err, "cannot set up the lab's network")
		}
	}
	for _, line := range []string{
		"link set lo up",
		"link add incomplete type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
		"addr add " + gateway4 + "/24 dev incomplete",
		"addr add " + gateway6 + "/64 dev incomplete nodad",
		"route add unreachable default",
		"-6 route add unreachable default",
		"link set incomplete name " + bridge,
		"link set " + bridge + " up",
	} {
		if err := ip(ctx, strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// routePods adds the routes to the node's Pods to the lab's network, so that refusals reach them too. Otherwise, a Pod's request
// to a Service would wait for half a minute if kube-proxy isn't ready yet.
func (n *Node) routePods(ctx context.Context) error {
	subnets, err := parsePrefixes(n.state.PodSubnets)
	if err != nil {
		return err
	}
	for _, subnet := range subnets {
		pods, err := podRange(subnet, n.state.Index)
		if err != nil {
			return err
		}
		via := n.IP()
		if subnet.Addr().Is6() {
			via = n.IPv6()
		}
		if err := ip(ctx, "-n", n.lab.netns(), "route", "replace", pods.String(), "via", via); err != nil {
			return err
		}
	}
	return nil
}

// InNetwork runs fn in the lab's network, which exists once a node has been started: sockets that fn opens stay there. fn must
// stay on its goroutine: others run outside.
func (l *Lab) InNetwork(fn func() error) error {
	return thread.Do(func() error {
		if err := thread.EnterNet(l.netnsPath()); err != nil {
			return err
		}
		return fn()
	})
}

func (l *Lab) removeNetwork(ctx context.Context) error {
	if _, err := os.Lstat(l.netnsPath()); os.IsNotExist(err) {
		return nil
	}
	return ip(ctx, "netns", "del", l.netns())
}

func ip(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	return errors.Wrapf(err, "ip %s: %s", strings.Join(args, " "), strings.TrimSpace(string(out)))
}
