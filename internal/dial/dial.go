// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package dial connects to hosts (TCP), and tells a host that doesn't answer at all (SilentError) from one that's there, but refuses
// (RefusedError). Any other error, such as a firewall's on the way, says nothing about the host.
package dial

import (
	"context"
	"net"
	"net/netip"
	"syscall"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/parallel"
)

// SilentError means that nobody answers at an address: no packet comes back, or the last host on the way, which may be this one, finds
// nobody in the address's network.
type SilentError struct{ Err error }

func (e SilentError) Error() string { return e.Err.Error() }

func (e SilentError) Unwrap() error { return e.Err }

// RefusedError means that a host has the address, and doesn't accept the connection.
type RefusedError struct{ Err error }

func (e RefusedError) Error() string { return e.Err.Error() }

func (e RefusedError) Unwrap() error { return e.Err }

// TCP connects to a host and port. If the host is a name with several addresses, it tries them all at the same time, and they're silent
// only if each of them is.
func TCP(ctx context.Context, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type attempt struct {
		conn net.Conn
		err  error
	}
	var connected net.Conn
	for _, a := range parallel.Map(addrs, 0, func(ip netip.Addr) attempt {
		conn, err := connect(ctx, ip.Unmap(), port)
		if err == nil {
			cancel() // one is enough
		}
		return attempt{conn, err}
	}) {
		switch {
		case a.conn != nil && connected == nil:
			connected = a.conn
		case a.conn != nil:
			_ = a.conn.Close()
		case err == nil || errors.As(err, new(SilentError)):
			err = a.err
		}
	}
	if connected != nil {
		return connected, nil
	}
	return nil, err
}

// connect keeps a duplicate of the socket, because Go closes its own before anybody can read the report about a failure.
func connect(ctx context.Context, to netip.Addr, port string) (net.Conn, error) {
	socket := -1
	closeSocket := func() {
		if socket >= 0 {
			_ = unix.Close(socket)
		}
	}
	defer func() { closeSocket() }()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			closeSocket() // of an earlier try
			socket, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			keepReports(int(fd), to)
		})
	}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(to.String(), port))
	if err != nil {
		r, found := readReport(socket)
		return nil, explain(err, to, r, found)
	}
	return conn, nil
}

// explain finds out from the report about a failure, if there's one, whether there's a host.
func explain(err error, to netip.Addr, r report, found bool) error {
	var network net.Error
	switch {
	case found && r.from == to.WithZone(""), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.ECONNRESET):
		return RefusedError{errors.WithStack(err)}
	case found && r.noHost(), !found && errors.As(err, &network) && network.Timeout():
		return SilentError{errors.WithStack(err)}
	case found:
		return errors.Wrapf(err, "rejected by %s", r.from)
	}
	return errors.WithStack(err)
}
