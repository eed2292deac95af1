// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/test/apart"
)

func meaning(conn net.Conn, err error) string {
	switch {
	case err == nil:
		_ = conn.Close()
		return "connected"
	case errors.As(err, new(SilentError)):
		return "silent"
	case errors.As(err, new(RefusedError)):
		return "refused"
	}
	return "unknown"
}

// TestExplain: only a report that nobody has the address makes a host silent that doesn't keep quiet.
func TestExplain(t *testing.T) {
	to, router := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.254")
	icmp := func(kind, code uint8, from netip.Addr) report {
		return report{unix.SO_EE_ORIGIN_ICMP, kind, code, from}
	}
	icmp6 := func(kind, code uint8) report {
		return report{unix.SO_EE_ORIGIN_ICMP6, kind, code, netip.MustParseAddr("2001:db8::1")}
	}
	for _, c := range []struct {
		errno  error
		report report // none if it's the zero value
		want   string
	}{
		{os.ErrDeadlineExceeded, report{}, "silent"},
		{unix.EHOSTUNREACH, icmp(3, 1, router), "silent"},
		{unix.EHOSTUNREACH, icmp(3, 1, to), "refused"},
		{unix.EHOSTUNREACH, icmp(3, 10, router), "unknown"},
		{unix.EHOSTUNREACH, icmp(3, 13, router), "unknown"},
		{unix.EHOSTUNREACH, icmp(3, 13, to), "refused"},
		{unix.ENETUNREACH, icmp(3, 0, router), "unknown"},
		{unix.ENETUNREACH, icmp(3, 9, router), "unknown"},
		{unix.EHOSTUNREACH, icmp6(1, 3), "silent"},
		{unix.ENETUNREACH, icmp6(1, 0), "unknown"},
		{unix.EACCES, icmp6(1, 1), "unknown"},
		{unix.EACCES, icmp6(1, 5), "unknown"},
		{unix.EHOSTUNREACH, report{}, "unknown"},
		{unix.ECONNREFUSED, report{}, "refused"},
		{unix.ENETUNREACH, report{}, "unknown"},
		{context.Canceled, report{}, "unknown"},
	} {
		if got := meaning(nil, explain(&net.OpError{Op: "dial", Err: c.errno}, to, c.report, c.report != report{})); got != c.want {
			t.Errorf("%v, %+v: %s, want %s", c.errno, c.report, got, c.want)
		}
	}
}

// Ports of the host in TestReports at which its firewall rejects.
const (
	prohibited, unreachable = 7, 9
	serving                 = "80"
)

// TestReports: a host that's behind a firewall isn't silent, although the error is that of a host that's off.
func TestReports(t *testing.T) {
	if !apart.Isolated(t) {
		return
	}
	hosts := t.TempDir() + "/hosts"
	check(t, os.WriteFile(hosts, []byte("192.0.2.9 mixed off\n198.51.100.1 mixed\n2001:db8::9 off\n"), 0o600))
	apart.Bind(t, hosts, "/etc/hosts")
	filtered := network(t)
	type attempt struct {
		name, address, want string
	}
	all := []attempt{
		{"a server", "198.51.100.1:80", "connected"},
		{"a closed port", "198.51.100.1:81", "refused"},
		{"off, in this network", "192.0.2.9:80", "silent"},
		{"off, behind a router", "203.0.113.9:80", "silent"},
		{"no such host, says a router", "198.51.100.2:80", "silent"},
		{"a firewall drops", "198.51.100.3:80", "silent"},
		{"a firewall on the way prohibits", "198.51.100.4:80", "unknown"},
		{"a route here that prohibits", "198.51.100.5:80", "unknown"},
		{"a route here to nowhere", "198.51.100.6:80", "unknown"},
		{"no route", "8.8.8.8:80", "unknown"},
		{"IPv6: a server", "[2001:db8:1::1]:80", "connected"},
		{"IPv6: a closed port", "[2001:db8:1::1]:81", "refused"},
		{"IPv6: off, in this network", "[2001:db8::9]:80", "silent"},
		{"IPv6: off, behind a router", "[2001:db8:2::9]:80", "silent"},
		{"IPv6: no route, says a router", "[2001:db8:1::2]:80", "unknown"},
		{"IPv6: a firewall drops", "[2001:db8:1::3]:80", "silent"},
		{"IPv6: a firewall on the way prohibits", "[2001:db8:1::4]:80", "unknown"},
		{"IPv6: a route here that prohibits", "[2001:db8:1::5]:80", "unknown"},
		{"IPv6: a route here to nowhere", "[2001:db8:1::6]:80", "unknown"},
		{"a name: off, and a server", "mixed:80", "connected"},
		{"a name: off, and a closed port", "mixed:81", "refused"},
		{"a name: off, and off", "off:80", "silent"},
		{"an unknown name", "nobody.invalid:80", "unknown"},
	}
	if filtered {
		all = append(all,
			attempt{"its firewall prohibits", "198.51.100.1:7", "refused"},
			attempt{"its firewall calls it unreachable", "198.51.100.1:9", "refused"},
			attempt{"IPv6: its firewall prohibits", "[2001:db8:1::1]:7", "refused"},
			attempt{"IPv6: its firewall calls it unreachable", "[2001:db8:1::1]:9", "refused"})
	}
	parallel.Map(all, 0, func(a attempt) any {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		conn, err := TCP(ctx, a.address)
		if got := meaning(conn, err); got != a.want {
			t.Errorf("%s (%s): %s, want %s: %v", a.name, a.address, got, a.want, err)
		}
		return nil
	})
}

// network makes a network of this host and, in another namespace, a router that's also a host with a server. It reports whether the
// host has a firewall.
func network(t *testing.T) (filtered bool) {
	t.Helper()
	router := -1
	within(t, -1, func() {
		var err error
		check(t, unix.Unshare(unix.CLONE_NEWNET))
		router, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		check(t, err)
	})
	t.Cleanup(func() { _ = unix.Close(router) })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "here"
	check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "there"}))
	there, err := netlink.LinkByName("there")
	check(t, err)
	check(t, netlink.LinkSetNsFd(there, router))
	within(t, router, func() {
		up(t, "lo", "198.51.100.1/32", "2001:db8:1::1/128")
		up(t, "there", "192.0.2.254/24", "2001:db8::254/64")
		attrs.Name = "behind"
		check(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "far"}))
		up(t, "far")
		up(t, "behind", "203.0.113.254/24", "2001:db8:2::254/64")
		// Without the limits for ICMP: one charges for a report that the other holds back, so that a host might never get its.
		for path, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv4/icmp_ratemask": "0", "ipv6/icmp/ratelimit": "0"} {
			check(t, os.WriteFile("/proc/sys/net/"+path, []byte(value), 0))
		}
		for end, kind := range map[string]int{"2": unix.RTN_UNREACHABLE, "3": unix.RTN_BLACKHOLE, "4": unix.RTN_PROHIBIT} {
			route(t, kind, "198.51.100."+end+"/32", "")
			route(t, kind, "2001:db8:1::"+end+"/128", "")
		}
		listener, err := net.Listen("tcp", ":"+serving)
		check(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		filtered = filter(t)
	})
	up(t, "here", "192.0.2.1/24", "2001:db8::1/64")
	for to, via := range map[string]string{"198.51.100.0/24": "192.0.2.254", "203.0.113.0/24": "192.0.2.254", "2001:db8:1::/64": "2001:db8::254", "2001:db8:2::/64": "2001:db8::254"} {
		route(t, unix.RTN_UNICAST, to, via)
	}
	for end, kind := range map[string]int{"5": unix.RTN_PROHIBIT, "6": unix.RTN_UNREACHABLE} {
		route(t, kind, "198.51.100."+end+"/32", "")
		route(t, kind, "2001:db8:1::"+end+"/128", "")
	}
	return filtered
}

// within calls do in another network namespace, whose thread ends with it.
func within(t *testing.T, namespace int, do func()) {
	t.Helper()
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if namespace >= 0 {
			check(t, unix.Setns(namespace, unix.CLONE_NEWNET))
		}
		do()
	}()
	if <-done; t.Failed() { // only that goroutine has ended
		t.FailNow()
	}
}

func up(t *testing.T, name string, addresses ...string) {
	t.Helper()
	link, err := netlink.LinkByName(name)
	check(t, err)
	for _, text := range addresses {
		address, err := netlink.ParseAddr(text)
		check(t, err)
		if address.IP.To4() == nil {
			address.Flags = unix.IFA_F_NODAD
		}
		check(t, netlink.AddrAdd(link, address))
	}
	check(t, netlink.LinkSetUp(link))
}

func route(t *testing.T, kind int, to, via string) {
	t.Helper()
	_, network, err := net.ParseCIDR(to)
	check(t, err)
	check(t, netlink.RouteAdd(&netlink.Route{Type: kind, Dst: network, Gw: net.ParseIP(via)}))
}

// filter makes the host's firewall.
func filter(t *testing.T) bool {
	t.Helper()
	conn, err := nftables.New()
	check(t, err)
	table := conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: "filter"})
	input := conn.AddChain(&nftables.Chain{Name: "input", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput,
		Priority: nftables.ChainPriorityFilter})
	for port, code := range map[uint16]uint8{prohibited: unix.NFT_REJECT_ICMPX_ADMIN_PROHIBITED, unreachable: unix.NFT_REJECT_ICMPX_HOST_UNREACH} {
		conn.AddRule(&nftables.Rule{Table: table, Chain: input, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
			&expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: code},
		}})
	}
	if err := conn.Flush(); err != nil {
		t.Logf("this kernel has no nftables: %v", err)
		return false
	}
	return true
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
