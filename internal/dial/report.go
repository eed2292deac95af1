// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// report is a host's message that a packet can't arrive. Of the error alone, nobody knows whether a router finds no such host, or a
// firewall keeps it from answering: both are EHOSTUNREACH.
type report struct {
	origin     uint8 // of unix.SO_EE_ORIGIN_*
	kind, code uint8 // ICMP's
	from       netip.Addr
}

const (
	icmpUnreachable, icmpHostUnreachable      = 3, 1
	icmp6Unreachable, icmp6AddressUnreachable = 1, 3
)

// noHost reports whether the last router, or this host's kernel in its own network, finds nobody who has the address.
func (r report) noHost() bool {
	switch r.origin {
	case unix.SO_EE_ORIGIN_ICMP:
		return r.kind == icmpUnreachable && r.code == icmpHostUnreachable
	case unix.SO_EE_ORIGIN_ICMP6:
		return r.kind == icmp6Unreachable && r.code == icmp6AddressUnreachable
	}
	return false
}

// keepReports has the kernel queue the reports about a socket. Kernels before 5.8 don't for TCP: then nobody is silent who could also
// be behind a firewall.
func keepReports(socket int, to netip.Addr) {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	if to.Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
	}
	_ = unix.SetsockoptInt(socket, level, option, 1)
}

// readReport reads the first report in a socket's queue.
func readReport(socket int) (report, bool) {
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(socket, nil, control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	if err != nil {
		return report{}, false
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return report{}, false
	}
	for _, m := range messages {
		v4 := m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_RECVERR
		v6 := m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if v4 || v6 {
			return parseReport(m.Data)
		}
	}
	return report{}, false
}

// parseReport reads the kernel's struct sock_extended_err, and the socket address after it.
func parseReport(data []byte) (r report, ok bool) {
	const size = 16
	if len(data) < size {
		return report{}, false
	}
	r.origin, r.kind, r.code = data[4], data[5], data[6]
	from := data[size:]
	switch {
	case len(from) >= unix.SizeofSockaddrInet4 && binary.NativeEndian.Uint16(from) == unix.AF_INET:
		r.from, _ = netip.AddrFromSlice(from[4:8])
	case len(from) >= unix.SizeofSockaddrInet6 && binary.NativeEndian.Uint16(from) == unix.AF_INET6:
		r.from, _ = netip.AddrFromSlice(from[8:24])
	}
	return r, true
}
