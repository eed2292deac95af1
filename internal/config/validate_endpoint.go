// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// checkAdvertise checks an API server's address. It mustn't be within any of networks, which is empty if the document has none.
func (d *documents) checkAdvertise(kind, path, text string, networks []network) {
	addr, err := netip.ParseAddr(text)
	switch {
	case text == "":
		d.faultf(kind, path, "is not set, and this host has no default route whose address could be used; set it here or with --apiserver-advertise-address")
	case err != nil && hasLeadingZero(text):
		d.faultf(kind, path, "%q has a leading zero, which some programs read as octal; remove the zero", printable(text))
	case err != nil:
		d.faultf(kind, path, "%q is not an IP address", printable(text))
	case addr.Zone() != "" || addr.Is4In6():
		d.faultf(kind, path, "%q must be a plain IPv4 or IPv6 address", printable(text))
	case addr.IsUnspecified(), addr.IsLoopback(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		d.faultf(kind, path, "%s is not an address at which other hosts can reach this one", text)
	default:
		for _, n := range networks {
			if n.prefix.Contains(addr) {
				d.faultf(kind, path, "%s is within %s %s; the networks of hosts, Pods and Services must not overlap", text, n.path, n.text)
			}
		}
	}
}

func (d *documents) checkPort(kind, path string, port int32) {
	if port < 1 || port > 65535 {
		d.faultf(kind, path, "%d is not a port (1 to 65535)", port)
	}
}

// hostPortFault checks HOST or HOST:PORT; needPort makes the port mandatory.
func hostPortFault(text string, needPort bool) string {
	host, port, hasPort := splitHostPort(text)
	if strings.Contains(text, "://") {
		return "must be a host and a port, without a scheme"
	}
	if strings.Contains(text, "@") {
		return "must be a host and a port, without a user"
	}
	if msg := endpointHostFault(text, host); msg != "" {
		return msg
	}
	if !hasPort {
		if needPort {
			return "has no port; expected something like 10.0.0.1:6443"
		}
		return ""
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return fmt.Sprintf("has the invalid port %q (ports are 1 to 65535)", printable(port))
	}
	return ""
}

// endpointHostFault checks the endpoint text's host. Clients put it into a URL, where brackets are for IPv6 only (RFC 3986,
// section 3.2.2); and a zone is only valid on one host.
func endpointHostFault(text, host string) string {
	addr, err := netip.ParseAddr(host)
	switch {
	case err == nil && addr.Zone() != "":
		return fmt.Sprintf("has the address %q with a zone, which is only valid on this host", printable(host))
	case err == nil && addr.Is6() && text != host && !strings.HasPrefix(text, "["):
		return "needs brackets around the IPv6 address, as in [fd00::1]:6443"
	case err == nil && addr.Is4() && strings.HasPrefix(text, "["), err != nil && strings.ContainsAny(text, "[]"):
		return "has brackets, which are only for IPv6 addresses"
	case err == nil:
		return ""
	}
	if msg := subdomainFault(host); msg != "" {
		return fmt.Sprintf("has the host %q, which is neither an IP address nor a DNS name: it %s", printable(host), msg)
	}
	return ""
}

// splitHostPort splits host, host:port, IPv6, [IPv6] and [IPv6]:port. Like kubeadm, it ignores a trailing colon without a port.
func splitHostPort(text string) (host, port string, hasPort bool) {
	if _, err := netip.ParseAddr(text); err == nil {
		return text, "", false
	}
	i := strings.LastIndexByte(text, ':')
	if i < 0 || strings.HasSuffix(text, "]") {
		return strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), "", false
	}
	host, port = text[:i], text[i+1:]
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		host = host[1 : len(host)-1]
	}
	return host, port, port != ""
}
