// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"net"

	"github.com/pkg/errors"
)

// Gateway is this machine's address in the lab's network.
const Gateway = "192.168.99.1"

// Dial opens a connection in the lab's network.
func (l *Lab) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = l.InNetwork(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, errors.Wrap(err, "the lab's network")
}

// Listen accepts connections in the lab's network, at Gateway.
func (l *Lab) Listen(port string) (listener net.Listener, err error) {
	err = l.InNetwork(func() (err error) {
		listener, err = net.Listen("tcp", net.JoinHostPort(Gateway, port))
		return err
	})
	return listener, errors.Wrap(err, "the lab's network")
}
