// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// A boot gets modules and kernel parameters from these: modules-load.d(5), sysctl.d(5).
const (
	modulesPath = "/etc/modules-load.d/slipway.conf"
	sysctlPath  = "/etc/sysctl.d/90-slipway.conf"
)

// runKernel loads a module before a boot has to: if it can't be loaded now, systemd-modules-load.service would fail at each boot.
func runKernel(ctx context.Context, env *step.Env) error {
	var names []byte
	for _, m := range preflight.HostModules() {
		names = fmt.Appendln(names, m.Name())
		if m.Works(env.Host) {
			continue
		}
		env.UI.Printf("Loading the kernel module %s", m.Name())
		if err := env.Host.LoadModule(ctx, m.Name()); err != nil {
			return err
		}
	}
	if _, err := ensureFiles(ctx, env, ownership.File{Path: modulesPath, Data: names, Mode: 0o644}); err != nil {
		return err
	}
	parameters, err := wantedParameters(env.Host)
	if err != nil {
		return err
	}
	if _, err := ensureFiles(ctx, env, ownership.File{Path: sysctlPath, Data: sysctlFile(parameters), Mode: 0o644}); err != nil {
		return err
	}
	return setParameters(env, parameters)
}

// wantedParameters are the kernel parameters Pods and the kubelet need, by path below /proc/sys:
// https://kubernetes.io/docs/setup/production-environment/container-runtimes/
func wantedParameters(h host.Host) (map[string]string, error) {
	wanted := map[string]string{
		"net/ipv4/ip_forward":                 "1",
		"net/bridge/bridge-nf-call-iptables":  "1",
		"net/bridge/bridge-nf-call-ip6tables": "1",
	}
	for name, value := range preflight.KubeletParameters() {
		if _, err := h.Stat(host.ProcSys + name); err == nil { // a kernel may lack some
			wanted[name] = value
		}
	}
	if _, err := h.Stat(host.ProcSys + forwardsIPv6); errors.Is(err, fs.ErrNotExist) {
		return wanted, nil // a kernel without IPv6
	}
	wanted[forwardsIPv6] = "1"
	address, err := h.DefaultAddress(true)
	if err != nil {
		return wanted, err
	}
	before, err := host.ReadIfExists(h, sysctlPath)
	if err != nil {
		return wanted, err
	}
	interfaces, err := h.Interfaces()
	for _, i := range interfaces {
		// A forwarding host takes its default route from the router's advertisements only with 2:
		// https://docs.kernel.org/networking/ip-sysctl.html. An earlier run's setting stays, because the route may be away.
		name := "net/ipv6/conf/" + i.Name + acceptRoutes
		value, err := h.ReadFile(host.ProcSys + name)
		hasRoute := address.IsValid() && slices.Contains(i.Addresses, address)
		if err == nil && (hasRoute || bytes.Contains(before, []byte(name+" = 2\n"))) && strings.TrimSpace(string(value)) != "0" {
			wanted[name] = "2"
		}
	}
	return wanted, err
}

// sysctlFile sets parameters at boot. An interface that's gone by then isn't an error.
func sysctlFile(parameters map[string]string) []byte {
	var b strings.Builder
	b.WriteString("# Made when this host was prepared: Pods reach each other, and Services, only with net.*; the kubelet insists on the others.\n")
	for _, name := range routesFirst(parameters) {
		optional := ""
		if acceptsRoutes(name) {
			optional = "-"
		}
		fmt.Fprintf(&b, "%s%s = %s\n", optional, name, parameters[name])
	}
	return []byte(b.String())
}

// routesFirst has accept_ra first: when a host begins to forward, the kernel drops the routes that routers have advertised to an
// interface without it.
func routesFirst(parameters map[string]string) []string {
	names := parametersInOrder(parameters)
	i := slices.IndexFunc(names, acceptsRoutes)
	if i < 0 {
		return names
	}
	return slices.Concat(names[i:], names[:i])
}

func setParameters(env *step.Env, parameters map[string]string) error {
	for _, name := range routesFirst(parameters) {
		changed, err := env.Host.SetParameter(name, parameters[name])
		if err != nil {
			return err
		}
		if changed {
			env.UI.Printf("Set %s to %s", strings.ReplaceAll(name, "/", "."), parameters[name])
		}
	}
	return nil
}
