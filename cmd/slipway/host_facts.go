// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"net/netip"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
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
