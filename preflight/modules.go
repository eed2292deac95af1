// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
)

// module is a part of the kernel that a node uses.
type module struct {
	name string
	// shown is a file that is there when the module works, however it got into
	// the kernel; or, if text is set, one that holds text then.
	shown, text string
	option      string // CONFIG_…=y: built in
	// byHand tells that nothing loads the module by itself.
	byHand bool
	use    string
}

// neededModules are named by
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/
// and, for kube-proxy, by
// https://kubernetes.io/docs/reference/networking/virtual-ips/
func neededModules(n *config.Node) []module {
	list := []module{
		{name: "overlay", shown: "/proc/filesystems", text: "\toverlay\n", option: "OVERLAY_FS",
			use: "container runtimes put the layers of images together with it"},
		{name: "br_netfilter", shown: "/proc/sys/net/bridge/bridge-nf-call-iptables", option: "BRIDGE_NETFILTER", byHand: true,
			use: "packets between Pods on one Linux bridge pass by the rules of Services and of network policies without it (network add-ons without such a bridge do not need it)"},
		{name: "nf_conntrack", shown: "/proc/sys/net/netfilter/nf_conntrack_max", option: "NF_CONNTRACK",
			use: "kube-proxy's rules for Services need it"},
	}
	switch n.KubeProxy.Mode {
	case "ipvs":
		list = append(list, module{name: "ip_vs", shown: "/proc/net/ip_vs", option: "IP_VS", use: "kube-proxy in mode ipvs needs it"})
	case "nftables":
		list = append(list, module{name: "nf_tables", option: "NF_TABLES", use: "kube-proxy in mode nftables needs it"})
	}
	return list
}

func kernelModules(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		k := readKernel(h)
		var found []Finding
		for _, m := range neededModules(n) {
			switch state := k.state(m); {
			case state == absent:
				found = append(found, warn("the kernel module %s is neither loaded nor to be found; %s: use a kernel that has it, or install its package of modules (linux-modules-extra on Ubuntu)", m.name, m.use)...)
			case state == loadable && m.byHand:
				found = append(found, warn("the kernel module %s is not loaded; %s: run `modprobe %s`, and name it in /etc/modules-load.d/k8s.conf", m.name, m.use, m.name)...)
			case state == unknown:
				found = append(found, note("whether the kernel has %s cannot be told", m.name)...)
			}
		}
		return append(found, bridged(h)...)
	}
}

// bridged looks at the switch of br_netfilter, where that is in the kernel.
func bridged(h View) []Finding {
	const path, setting = "/proc/sys/net/bridge/bridge-nf-call-iptables", "net.bridge.bridge-nf-call-iptables"
	text, err := h.ReadFile(path)
	if err != nil || strings.TrimSpace(string(text)) == "1" {
		return nil
	}
	return warn("%s is %q, so packets between Pods on one Linux bridge pass by the rules of Services: run `sysctl -w %s=1`, and keep it in /etc/sysctl.d/k8s.conf", setting, strings.TrimSpace(string(text)), setting)
}

type moduleState int

const (
	unknown moduleState = iota
	absent
	loadable
	inKernel
)

// kernel is what can be read about modules; a list is nil if it cannot.
type kernel struct {
	h                 View
	builtin, loadable []string
	config            string
}

func readKernel(h View) kernel {
	k := kernel{h: h}
	k.config, _ = readKernelConfig(h)
	release, err := h.KernelRelease()
	if err != nil {
		return k
	}
	dir := "/lib/modules/" + release
	k.builtin = moduleNames(h, dir+"/modules.builtin")
	k.loadable = moduleNames(h, dir+"/modules.dep")
	return k
}

// moduleNames reads a file of modprobe's: lines that begin with a path such as
// kernel/net/bridge/br_netfilter.ko.zst, perhaps with a colon behind it.
func moduleNames(h View, path string) []string {
	text, err := h.ReadFile(path)
	if err != nil {
		return nil
	}
	names := []string{}
	for line := range strings.Lines(string(text)) {
		path, _, _ := strings.Cut(line, ":")
		file := path[strings.LastIndex(path, "/")+1:]
		if name, _, ok := strings.Cut(file, ".ko"); ok {
			names = append(names, strings.ReplaceAll(name, "-", "_"))
		}
	}
	return names
}

func (k kernel) state(m module) moduleState {
	on := "\nCONFIG_" + m.option + "="
	switch {
	case exists(k.h, "/sys/module/"+m.name) || k.shows(m) || slices.Contains(k.builtin, m.name) || strings.Contains("\n"+k.config, on+"y\n"):
		return inKernel
	case slices.Contains(k.loadable, m.name):
		return loadable
	case k.loadable != nil, k.config != "" && !strings.Contains("\n"+k.config, on):
		return absent
	}
	return unknown
}

func (k kernel) shows(m module) bool {
	if m.shown == "" {
		return false
	}
	text, err := k.h.ReadFile(m.shown)
	return err == nil && strings.Contains(string(text), m.text)
}
