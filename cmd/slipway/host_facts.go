// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"io/fs"
	"net/netip"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
)

// nodeInput is what a command loads its node from.
type nodeInput struct {
	file    *config.Source // of --config; nil without
	host    *host.Real
	options config.Options
}

// readNodeInput reads the configuration file, if one is given, and asks this host for what defaults depend on.
func readNodeInput(ctx context.Context, g *globals, m mode, file string) (*nodeInput, error) {
	src, err := readConfigFile(ctx, g, file)
	if err != nil {
		return nil, err
	}
	real := host.New()
	facts, err := hostFacts(real)
	if err != nil {
		return nil, err
	}
	return &nodeInput{src, real, m.options(facts)}, nil
}

// anyRuntime is for a command that neither chooses the node's container runtime nor asks it: where several are installed, it
// need not be told which. It gets the kubelet's, or the first.
func (in *nodeInput) anyRuntime() {
	facts := &in.options.Facts
	if len(facts.Sockets) > 1 {
		facts.Sockets = []string{cmp.Or(strings.TrimPrefix(thisnode.KubeletSocket(in.host), "unix://"), facts.Sockets[0])}
	}
}

// hostFacts asks this host for what defaults depend on. What cannot be known stays empty: the configuration may say it.
func hostFacts(real *host.Real) (config.HostFacts, error) {
	name, err := real.Hostname()
	if err != nil {
		return config.HostFacts{}, err
	}
	return config.HostFacts{
		Hostname: name,
		IPv4:     defaultAddress(real, false),
		IPv6:     defaultAddress(real, true),
		Sockets:  existing(real, config.KnownSockets()),
	}, nil
}

func defaultAddress(real *host.Real, ipv6 bool) netip.Addr {
	addr, err := real.DefaultAddress(ipv6)
	if err != nil {
		return netip.Addr{}
	}
	return addr
}

// existing are those of paths that are sockets.
func existing(real *host.Real, paths []string) []string {
	var found []string
	for _, path := range paths {
		if info, err := real.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
			found = append(found, path)
		}
	}
	return found
}
