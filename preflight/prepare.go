// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

type HostRuntime struct {
	Socket string
	// Installed reports whether the operator installed it, Running whether it should answer already.
	Installed, Running bool
}

type Preparation struct {
	Runtime HostRuntime
	Sizes   map[string]uint64 // the bytes to write, by directory
	// Parameters are kernel parameters, by path below /proc/sys, and SysctlFile sets them at boot.
	Parameters map[string]string
	SysctlFile string
	// Written are the directories of the bundle's files.
	Written []string
	// Refused explains which of the bundle's programs can't be put in place, each with a remedy.
	Refused []error
}

// Prepare lists the checks of a host before it is prepared.
func Prepare(m *config.Machine, p Preparation) []Check {
	checks := []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"},
		{Name: "Systemd", Run: runsSystemd, Description: "systemd is this host's init"},
		{Name: "DefaultRoute", Run: defaultRoute, Description: "a default route shows which address is the node's"},
		{Name: "SystemVerification", Run: with(m, system), Description: "kernel release and options, cgroup controllers; no cgroup v1, unless failCgroupV1 allows it"},
		{Name: "CNI", Run: foreignNetworks, Description: "which Pod networks are configured already (note)"},
		{Name: "Firewalld", Run: with(preparedOpenings(m), firewalld), Description: firewallChecked},
		{Name: "SELinux", Run: selinux, Description: "contexts can be restored where SELinux is on"},
		{Name: "WritableFolders", Run: with(p.Written, writableIn), Description: "a file can be created, synced and renamed in each directory that will be written to"},
		{Name: "Programs", Run: with(p.Refused, programsFit), Description: "no program that others installed or changed is in the place of a program of the bundle, and none on a node is newer"},
		{Name: "Sysctl", Run: bootParameters(p.SysctlFile, p.Parameters), Description: "no file of /etc/sysctl.d and the like sets the kernel parameters to something else at boot (warning)"},
	}
	if !slices.Contains(m.SkipPhases, "kernel") {
		checks = append(checks, Check{Name: "KernelModules", Run: hostModules, Description: "overlay and br_netfilter are loaded, built in or installed for this kernel"})
	}
	if r := p.Runtime; r.Installed && r.Running {
		checks = append(checks, Check{Name: "CRI", Run: with(r.Socket, runtimeFits), Description: "an existing container runtime answers, and is good enough"})
	}
	for _, dir := range slices.Sorted(maps.Keys(p.Sizes)) {
		checks = append(checks, Check{
			Name: "DiskSpace-" + dashed(dir), Run: func(_ context.Context, h View) []fault.Finding {
				size := together(h, dir, p.Sizes)
				return spaceOf(m, h, dir, need{what: "the bundle", least: size, good: size})
			},
			Description: "the bundle's files fit",
		})
	}
	return checks
}

// together is the sum of the sizes of directories on the same file system as dir.
func together(h View, dir string, sizes map[string]uint64) uint64 {
	here, err := h.Space(existingDir(h, dir))
	if err != nil {
		return sizes[dir]
	}
	sum := uint64(0)
	for other, size := range sizes {
		if at, err := h.Space(existingDir(h, other)); err == nil && at.Device == here.Device {
			sum += size
		}
	}
	return sum
}

func programsFit(_ context.Context, _ View, refused []error) []fault.Finding {
	var found []fault.Finding
	for _, err := range refused {
		found = append(found, fault.Of(err))
	}
	return found
}

func runsSystemd(_ context.Context, h View) []fault.Finding {
	if exists(h, "/run/systemd/system") {
		return nil
	}
	return fail("systemd is not this host's init, and nothing else can run the kubelet and the container runtime here").
		remedy("use a host that runs systemd")
}

// defaultRoute is an error because without it, init, join and the kubelet have to be told the node's address.
func defaultRoute(_ context.Context, h View) []fault.Finding {
	v4, err := h.DefaultAddress(false)
	if err == nil && v4.IsValid() {
		return nil
	}
	v6, err6 := h.DefaultAddress(true)
	if err6 == nil && v6.IsValid() {
		return nil
	}
	if err := cmp.Or(err, err6); err != nil {
		return warn("cannot read this host's default route: %v", err).remedy("check it with `ip route`")
	}
	return fail("this host has no default route, by which the kubelet and the API server find the node's address").
		remedy("add one, even to a gateway that is not there: `ip route add default via ADDRESS`; or set nodeRegistration.kubeletExtraArgs node-ip and localAPIEndpoint.advertiseAddress in the configuration for init or join, and give Services a route of their own: `ip route add SERVICE-SUBNET dev INTERFACE`")
}

// foreignNetworks names existing configurations of Pod networks, which stay.
func foreignNetworks(_ context.Context, h View) []fault.Finding {
	const dir = "/etc/cni/net.d"
	entries, err := h.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if IsNetwork(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	return note("%s configures a Pod network already, and stays as it is: %s", dir, strings.Join(names, ", "))
}

func selinux(_ context.Context, h View) []fault.Finding {
	if !h.SELinux() {
		return nil
	}
	if _, err := h.LookPath("restorecon"); err != nil {
		return fail("SELinux is on, and restorecon, which gives files their contexts, is missing").remedy("install policycoreutils")
	}
	return nil
}

// runtimeFits checks a container runtime that somebody else has installed.
func runtimeFits(ctx context.Context, h View, socket string) []fault.Finding {
	info, err := h.RuntimeInfo(ctx, socket)
	switch {
	case err != nil:
		return fail("this host's container runtime does not answer: %v", err).remedy("%s", cmp.Or(fault.Remedy(err), startRuntime))
	case info.APIVersion != "v1":
		return fail("%s %s speaks version %s of CRI, and the kubelet speaks v1", info.Name, info.Version, info.APIVersion).remedy(updateRuntime)
	case info.CgroupDriver == "systemd" && !exists(h, "/run/systemd/system"):
		return fail("%s uses the cgroup driver systemd, but this host does not run systemd", info.Name).remedy(driverRemedy, false, "cgroupfs")
	}
	found := twoManagers(h, info.Name, info.CgroupDriver)
	if !reportsDriver(info) {
		found = append(found, warn("%s %s cannot report its cgroup driver to the kubelet, and kubelets from 1.38 on require that", info.Name, info.Version).
			remedy(updateRuntime)...)
	}
	if dirs := info.CNIPluginDirs; len(dirs) > 0 && !slices.ContainsFunc(dirs, func(dir string) bool { return filepath.Clean(dir) == pluginDir }) {
		found = append(found, warn("%s looks for network plugins in %s, and most network add-ons install theirs to %s", info.Name, strings.Join(dirs, ", "), pluginDir).
			remedy(pluginDirRemedy)...)
	}
	return found
}

const pluginDirRemedy = "set bin_dir to " + pluginDir + " in its configuration, or add it to bin_dirs (containerd 2.1 or later), and restart it"
