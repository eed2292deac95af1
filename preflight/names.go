// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// lookupLimit is how long the host's resolver may take for one name. Slower is
// as bad as not at all, and init waits for it.
const lookupLimit = time.Second

func nodeName(name string) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
			return fault("the node cannot be called %q: %s; set another with --node-name or nodeRegistration.name", name, strings.Join(faults, "; "))
		}
		addrs, err := lookup(ctx, h, name)
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("whether %q resolves", name)
		case err != nil:
			return warn("the node's name %q does not resolve on this host (%v): programs that look it up will be slow or fail; add it to /etc/hosts or to DNS", name, err)
		case !slices.ContainsFunc(addrs, ownAddress(h)):
			return warn("the node's name %q resolves to %s, which is not an address of this host: programs that look it up will reach another; fix it in /etc/hosts or in DNS", name, addrs[0])
		}
		return nil
	}
}

// lookup is an error also where there is no address.
func lookup(ctx context.Context, h View, name string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	addrs, err := h.LookupHost(ctx, name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	return addrs, err
}

// ownAddress knows loopback, too: Debian gives a host's name 127.0.1.1. Where
// the interfaces cannot be listed, any address may be the host's.
func ownAddress(h View) func(netip.Addr) bool {
	interfaces, err := h.Interfaces()
	return func(a netip.Addr) bool {
		return err != nil || a.IsLoopback() || slices.ContainsFunc(interfaces, func(i host.Interface) bool { return slices.Contains(i.Addresses, a) })
	}
}

// controlPlaneEndpoint wants the name that every kubeconfig will hold to
// resolve here: without it the kubelet does not find the API.
func controlPlaneEndpoint(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		for _, endpoint := range apiEndpoints(n) {
			name, _, err := net.SplitHostPort(endpoint)
			if _, notIP := netip.ParseAddr(name); err != nil || notIP == nil {
				continue
			}
			_, err = lookup(ctx, h, name)
			switch {
			case errors.Is(err, host.ErrNotInPlan):
				return unasked("whether %q resolves", name)
			case err != nil:
				return fault("the control plane's endpoint %q does not resolve on this host (%v), so that the kubelet would not find the API server: add the name to DNS or to /etc/hosts, or choose another controlPlaneEndpoint", name, err)
			}
		}
		return nil
	}
}
