// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/pkg/errors"
)

// A nodeFile is written into a node's root before its first boot.
type nodeFile struct {
	path string
	data string
	mode os.FileMode
}

// nodeFiles returns the files that differ between nodes.
func nodeFiles(s state, controllers []string) ([]nodeFile, error) {
	subnets, err := parsePrefixes(s.PodSubnets)
	if err != nil {
		return nil, err
	}
	network, err := networkBatch(s.Index, subnets)
	if err != nil {
		return nil, err
	}
	files := []nodeFile{
		{"etc/hostname", s.Name + "\n", 0o644},
		{"etc/machine-id", s.MachineID + "\n", 0o444},
		{"etc/hosts", hostsFile(s.Name, s.Index), 0o644},
		{"etc/resolv.conf", "nameserver " + gateway4 + "\n", 0o644},
		{"etc/lab/network", network, 0o644},
		{"etc/systemd/system/lab-node.service.d/cgroups.conf", cgroupDropIn(controllers), 0o644},
	}
	if s.Bare {
		return append(files, nodeFile{"etc/containerd/conf.d/lab.toml", containerdSettings, 0o644}), nil
	}
	cni, err := cniConfig(s.Index, subnets)
	return append(files, nodeFile{podNetworkPath, cni, 0o644}), err
}

func parsePrefixes(texts []string) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, text := range texts {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, errors.Wrap(err, "not a Pod subnet")
		}
		prefixes = append(prefixes, prefix.Masked())
	}
	return prefixes, nil
}

const podNetworkPath = "etc/cni/net.d/10-lab.conflist"

// containerdSettings are settings that containerd needs on any machine of the lab, like those in parts/layer/node/etc/containerd:
// an operator's file beside the one `slipway host prepare` writes.
const containerdSettings = `version = 3

[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
`

// ConfigurePods gives a bare node the other nodes' Pod network.
func (n *Node) ConfigurePods() error {
	subnets, err := parsePrefixes(n.state.PodSubnets)
	if err != nil {
		return err
	}
	cni, err := cniConfig(n.state.Index, subnets)
	if err != nil {
		return err
	}
	return n.WriteFile("/"+podNetworkPath, []byte(cni), 0o644)
}

// networkBatch is input for "ip -batch": the node's addresses, the bridge as gateway, and routes to every other node's Pods.
func networkBatch(index int, subnets []netip.Prefix) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "addr add %s/24 dev host0\n", ipv4(index))
	fmt.Fprintf(&b, "addr add %s/64 dev host0 nodad\n", ipv6(index))
	fmt.Fprintf(&b, "link set host0 up\n")
	fmt.Fprintf(&b, "route add default via %s\n", gateway4)
	fmt.Fprintf(&b, "route add default via %s dev host0\n", gateway6)
	for _, subnet := range subnets {
		for other := firstIndex; other <= lastIndex; other++ {
			if other == index {
				continue
			}
			pods, err := podRange(subnet, other)
			if err != nil {
				return "", err
			}
			via := ipv4(other)
			if subnet.Addr().Is6() {
				via = ipv6(other)
			}
			fmt.Fprintf(&b, "route add %s via %s\n", pods, via)
		}
	}
	return b.String(), nil
}

// hostsFile names the node itself, and all nodes of the naming pattern.
func hostsFile(name string, index int) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n")
	fmt.Fprintf(&b, "%s %s\n", ipv4(index), name)
	for _, row := range []struct {
		prefix string
		first  int
	}{{"cp", 10}, {"worker", 20}} {
		for i := 1; i <= 9; i++ {
			if other := fmt.Sprintf("%s-%d", row.prefix, i); other != name {
				fmt.Fprintf(&b, "%s %s\n", ipv4(row.first+i), other)
			}
		}
	}
	return b.String()
}

// cgroupDropIn makes the controllers of cgroup version 1 writable; the container starts with them read-only. Version 2 has no
// separate controllers to name.
func cgroupDropIn(controllers []string) string {
	var b strings.Builder
	b.WriteString("[Service]\n")
	if len(controllers) > 0 {
		b.WriteString("ExecStart=/usr/bin/mount -o remount,rw /sys/fs/cgroup\n")
	}
	for _, controller := range controllers {
		// Without bind, this would remount the whole hierarchy, which is busy.
		fmt.Fprintf(&b, "ExecStart=/usr/bin/mount -o remount,bind,rw /sys/fs/cgroup/%s\n", controller)
	}
	return b.String()
}

// cniConfig is one node's Pod network: a bridge, and addresses from a range of its own.
func cniConfig(index int, subnets []netip.Prefix) (string, error) {
	type object = map[string]any
	var ranges [][]object
	var routes []object
	for _, subnet := range subnets {
		pods, err := podRange(subnet, index)
		if err != nil {
			return "", err
		}
		everything := "0.0.0.0/0"
		if subnet.Addr().Is6() {
			everything = "::/0"
		}
		ranges = append(ranges, []object{{"subnet": pods.String()}})
		routes = append(routes, object{"dst": everything})
	}
	data, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       "lab",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
				"ipam": object{"type": "host-local", "ranges": ranges, "routes": routes},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}, "", "  ")
	return string(data) + "\n", errors.Wrap(err, "cannot write the Pod network's configuration")
}
