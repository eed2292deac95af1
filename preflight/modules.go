// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// module is a part of the kernel used by a node.
type module struct {
	name string
	// shown is a file that exists, and contains text if set, when the module works, however it got into the kernel.
	shown, text string
	option      string // CONFIG_…=y: built in
	byHand      bool   // set if nothing loads the module automatically
	use         string
	instead     *module // will do, too
}

// neededModules come from
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/
// and, for kube-proxy, from
// https://kubernetes.io/docs/reference/networking/virtual-ips/
func neededModules(n *config.Node) []module {
	list := []module{
		{name: "overlay", shown: "/proc/filesystems", text: "\toverlay\n", option: "OVERLAY_FS",
			use: "container runtimes need it to combine the layers of images"},
		bridgeNetfilter(),
		{name: "nf_conntrack", shown: "/proc/sys/net/netfilter/nf_conntrack_max", option: "NF_CONNTRACK",
			use: "kube-proxy's rules for Services need it"},
	}
	switch n.KubeProxy.Mode {
	case "ipvs":
		list = append(list, module{name: "ip_vs", shown: "/proc/net/ip_vs", option: "IP_VS", use: "kube-proxy in ipvs mode needs it"})
	case "nftables":
		list = append(list, module{name: "nf_tables", option: "NF_TABLES", use: "kube-proxy in nftables mode needs it"})
	case "iptables", "":
		const use = "kube-proxy in iptables mode needs it"
		legacy := module{name: "ip_tables", shown: "/proc/net/ip_tables_names", option: "IP_NF_IPTABLES"}
		list = append(list, module{name: "nft_compat", option: "NFT_COMPAT", instead: &legacy, use: use + ", or ip_tables"},
			module{name: "xt_comment", option: "NETFILTER_XT_MATCH_COMMENT", use: use})
	}
	return list
}

func bridgeNetfilter() module {
	return module{name: "br_netfilter", shown: "/proc/sys/net/bridge/bridge-nf-call-iptables", option: "BRIDGE_NETFILTER", byHand: true,
		use: "without it, packets between Pods on one Linux bridge bypass Services and network policies (network add-ons without such a bridge do not need it)"}
}

func kernelModules(_ context.Context, h View, n *config.Node) []fault.Finding {
	k := readKernel(h)
	var found []fault.Finding
	var open []string
	for _, m := range neededModules(n) {
		switch state := k.state(m); {
		case state == absent:
			found = append(found, warn("the kernel module %s is neither loaded nor installed; %s", m.name, m.use).
				remedy("%s", host.ModulesRemedy(h))...)
		case state == loadable && m.byHand:
			found = append(found, warn("the kernel module %s is not loaded; %s", m.name, m.use).
				remedy("run `modprobe %[1]s`, and add %[1]s to /etc/modules-load.d/k8s.conf", m.name)...)
		case state == unknown:
			open = append(open, m.name)
		}
	}
	if len(open) > 0 {
		found = append(found, note("cannot determine whether the kernel has %s", strings.Join(open, ", "))...)
	}
	return append(found, bridged(h)...)
}

// bridged checks br_netfilter's setting, if the kernel has that module.
func bridged(h View) []fault.Finding {
	const path, setting = "/proc/sys/net/bridge/bridge-nf-call-iptables", "net.bridge.bridge-nf-call-iptables"
	text, err := h.ReadFile(path)
	if err != nil || strings.TrimSpace(string(text)) == "1" {
		return nil
	}
	return warn("%s is %q, so packets between Pods on one Linux bridge bypass the rules of Services", setting, strings.TrimSpace(string(text))).
		remedy(sysctlRemedy, setting)
}

type moduleState int

// The states of a module, the best last.
const (
	absent moduleState = iota
	unknown
	loadable
	inKernel
)

// kernel holds everything readable about modules; an unreadable list is nil.
type kernel struct {
	h                 View
	builtin, loadable []string
	config            string
	gone              bool // its modules were deleted, so it can't load any
}

func readKernel(h View) kernel {
	k := kernel{h: h}
	k.config, _ = readKernelConfig(h)
	release, err := h.KernelRelease()
	if err != nil {
		return k
	}
	dir := host.ModulesDir + release
	k.builtin = moduleNames(h, dir+"/modules.builtin")
	k.loadable = moduleNames(h, dir+host.ModuleList)
	k.gone = k.loadable == nil && host.ModulesGone(h)
	return k
}

// moduleNames reads a file of modprobe: paths such as kernel/net/bridge/br_netfilter.ko.zst, perhaps with a colon behind.
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
	config, on := "\n"+k.config, "\nCONFIG_"+m.option+"="
	state := unknown
	switch {
	case exists(k.h, "/sys/module/"+m.name) || k.shows(m) || slices.Contains(k.builtin, m.name) || strings.Contains(config, on+"y\n"):
		state = inKernel
	case slices.Contains(k.loadable, m.name):
		state = loadable
	case k.loadable != nil, k.config != "" && !strings.Contains(config, on), k.gone && strings.Contains(config, on+"m\n"):
		state = absent
	}
	if m.instead != nil {
		return max(state, k.state(*m.instead))
	}
	return state
}

func (k kernel) shows(m module) bool {
	if m.shown == "" {
		return false
	}
	text, err := k.h.ReadFile(m.shown)
	return err == nil && strings.Contains(string(text), m.text)
}

// hostModules finds modules that can't be loaded. Where that isn't known, the attempt to load them will show it.
func hostModules(_ context.Context, h View) []fault.Finding {
	k := readKernel(h)
	var missing []string
	for _, m := range HostModules() {
		if k.state(m.module) == absent {
			missing = append(missing, m.name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fail("this kernel lacks modules that a prepared host loads at each boot: %s", strings.Join(missing, ", ")).remedy("%s", host.ModulesRemedy(h))
}

// HostModule is a part of the kernel that nothing loads automatically at boot before it's needed.
type HostModule struct{ module }

// HostModules are the modules a host loads at boot.
func HostModules() []HostModule {
	var list []HostModule
	for _, m := range neededModules(&config.Node{}) {
		if m.name == "overlay" || m.byHand {
			list = append(list, HostModule{m})
		}
	}
	return list
}

func (m HostModule) Name() string { return m.name }

// Works reports whether the kernel has the module, loaded or built in.
func (m HostModule) Works(h View) bool { return readKernel(h).state(m.module) == inKernel }
