// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// How long the host's resolver may take for one name. Only the endpoint's is an error, so it gets as long as a slow host may need; for
// the warning about the node's name, a slower resolver is as bad as none.
const (
	nodeNameTimeout     = time.Second
	endpointNameTimeout = 10 * time.Second
)

func nodeName(ctx context.Context, h View, name string) []fault.Finding {
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return fail("invalid node name %q: %s", name, strings.Join(faults, "; ")).
			remedy("set another with --node-name or nodeRegistration.name")
	}
	addrs, err := lookup(ctx, h, name, nodeNameTimeout)
	switch {
	case errors.Is(err, host.ErrNotInPlan):
		return unasked("whether %q resolves", name)
	case err != nil:
		return warn("the node name %q does not resolve on this host (%v), so programs that look it up will be slow or fail", name, err).
			remedy("add it to /etc/hosts or to DNS")
	case !slices.ContainsFunc(addrs, ownAddress(h)):
		return warn("the node name %q resolves to %s, which is not an address of this host, so programs that look it up will reach another host", name, addrs[0]).
			remedy("fix it in /etc/hosts or in DNS")
	}
	return nil
}

// lookup also returns an error if the name has no address.
func lookup(ctx context.Context, h View, name string, limit time.Duration) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	addrs, err := h.LookupHost(ctx, name)
	if err == nil && len(addrs) == 0 {
		err = errors.New("no address")
	}
	return addrs, err
}

// ownAddress accepts loopback (Debian gives a host's name 127.0.1.1), and any address if the interfaces can't be listed.
func ownAddress(h View) func(netip.Addr) bool {
	own, err := h.Addresses() // those on lo, too, as of a host that announces its address by BGP
	return func(a netip.Addr) bool { return err != nil || a.IsLoopback() || slices.Contains(own, a) }
}

// controlPlaneEndpoint checks that this host can resolve the name in every kubeconfig, or its kubelet doesn't find the API.
func controlPlaneEndpoint(ctx context.Context, h View, n *config.Node) []fault.Finding {
	for _, endpoint := range apiEndpoints(n) {
		name, _, err := net.SplitHostPort(endpoint)
		if _, notIP := netip.ParseAddr(name); err != nil || notIP == nil {
			continue
		}
		_, err = lookup(ctx, h, name, endpointNameTimeout)
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("whether %q resolves", name)
		case err != nil:
			return fail("the control plane endpoint %q does not resolve on this host (%v), so the kubelet cannot find the API server", name, err).
				remedy("add the name to DNS or to /etc/hosts, or choose another controlPlaneEndpoint")
		}
	}
	return nil
}

// resolvConf checks the file whose name servers the kubelet gives to Pods: without it, the kubelet creates no container at all.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
func resolvConf(_ context.Context, h View, m *config.Machine) []fault.Finding {
	s := effectiveKubelet(m, h).resolvConf
	if s.value == "" { // Pods get no name servers of the host
		return nil
	}
	switch _, err := h.Stat(s.value); {
	case errors.Is(err, fs.ErrNotExist):
		return fail("%s does not exist (%s), and without it the kubelet creates no container", s.value, s.from).
			remedy("create it with the name servers of this host (where systemd-resolved runs, as a link to %s), or set resolvConf in the KubeletConfiguration", config.ResolvedConf)
	case err != nil:
		return warn("cannot look at %s (%s): %v", s.value, s.from, err).remedy("see that it exists: without it the kubelet creates no container")
	}
	return nil
}

// dnsLoop looks at the name servers CoreDNS forwards to: they come from the file that the kubelet gives to Pods with the host's
// DNS. A loopback address is the Pod's own, so CoreDNS would ask itself, and end when it notices:
// https://coredns.io/plugins/loop/#troubleshooting-loops-in-kubernetes-clusters
func dnsLoop(_ context.Context, h View, n *config.Node) []fault.Finding {
	file := effectiveKubelet(&n.Machine, h).resolvConf
	if n.Cluster.DNS.Disabled || file.value == "" {
		return nil
	}
	data, err := h.ReadFile(file.value)
	if err != nil {
		return skip("cannot read %s: %v", file.value, err)
	}
	servers := nameServers(string(data))
	loops := slices.DeleteFunc(slices.Clone(servers), func(server string) bool {
		address, err := netip.ParseAddr(server)
		return err != nil || !address.Unmap().IsLoopback() && !address.IsUnspecified()
	})
	const remedy = "name a server that Pods can reach in %s, or give the kubelet a file that does (resolvConf in the KubeletConfiguration)"
	switch {
	case len(servers) == 0:
		return warn("%s (%s) names no server, so CoreDNS can resolve only names of the cluster", file.value, file.from).remedy(remedy, file.value)
	case len(loops) == len(servers):
		return warn("%s (%s) names only %s, which in a Pod is the Pod itself, so CoreDNS would forward to itself and end", file.value, file.from, strings.Join(loops, ", ")).
			remedy(remedy, file.value)
	case slices.ContainsFunc(servers, isLinkLocal6):
		server := servers[slices.IndexFunc(servers, isLinkLocal6)]
		return warn("%s (%s) names %s, which is on a link of this host, so CoreDNS cannot reach it from a Pod", file.value, file.from, server).remedy(remedy, file.value)
	case len(loops) > 0:
		return warn("%s (%s) names %s, which in a Pod is the Pod itself, so CoreDNS may forward to itself and end", file.value, file.from, strings.Join(loops, ", ")).
			remedy(remedy, file.value)
	}
	return nil
}

func isLinkLocal6(server string) bool {
	address, err := netip.ParseAddr(server)
	return err == nil && address.Is6() && address.IsLinkLocalUnicast()
}

func nameServers(text string) []string {
	var servers []string
	for line := range strings.Lines(text) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "nameserver" {
			servers = append(servers, words[1])
		}
	}
	return servers
}
