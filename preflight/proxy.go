// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

func proxies(n *config.Node) []Check {
	return []Check{
		{Name: "HTTPProxy", Run: with(n, apiProxy), Asks: "requests to the API server go through no proxy (warning)"},
		{Name: "HTTPProxyCIDR", Run: with(n, networkProxy), Asks: "requests to the networks of Services and Pods go through no proxy (warning)"},
	}
}

// apiProxy checks the proxy of this program and everything that inherits its environment.
func apiProxy(_ context.Context, h View, n *config.Node) []fault.Finding {
	var found []fault.Finding
	for _, endpoint := range apiEndpoints(n) {
		proxy, err := h.ProxyFor("https://" + endpoint)
		if err != nil {
			return warn("%v", err).remedy(fixProxy)
		}
		if proxy != "" {
			host, _, _ := net.SplitHostPort(endpoint) // made by JoinHostPort
			found = append(found, warn("requests to the API server at %s would go through the proxy %s", endpoint, proxy).
				remedy("to bypass the proxy, add %s to NO_PROXY", host)...)
		}
	}
	return found
}

const fixProxy = "fix or remove HTTPS_PROXY and HTTP_PROXY"

// apiEndpoints lists the addresses at which this node reaches the API.
func apiEndpoints(n *config.Node) []string {
	if n.ControlPlane {
		return slices.Compact([]string{n.LocalEndpoint(), n.Endpoint()})
	}
	u, err := url.Parse(n.Join.Server)
	if err != nil || u.Host == "" { // the cluster is not known
		return nil
	}
	return []string{net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443"))}
}

func networkProxy(_ context.Context, h View, n *config.Node) []fault.Finding {
	var found []fault.Finding
	for _, network := range slices.Concat(n.ServiceSubnets(), n.PodSubnets()) {
		for _, addr := range []netip.Addr{network.Addr().Next(), last(network)} {
			proxy, err := h.ProxyFor("https://" + net.JoinHostPort(addr.String(), strconv.Itoa(443)))
			if err != nil {
				return warn("%v", err).remedy(fixProxy)
			}
			if proxy != "" {
				found = append(found, warn("requests to %s, a network of the cluster, would go through the proxy %s, which cannot reach it", network, proxy).
					remedy("add %s to NO_PROXY", network)...)
				break
			}
		}
	}
	return found
}

func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(bytes); bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}
