// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/phases/address"
)

// addressFlags move a node, instead of bringing it to the cluster's configuration.
type addressFlags struct{ advertise, nodeIP, endpoint string }

func (a *addressFlags) bind(flags *pflag.FlagSet) {
	flags.StringVar(&a.advertise, "advertise-address", "", "move this control plane to an `address` of this host: its API server, etcd and certificates")
	flags.StringVar(&a.nodeIP, "node-ip", "", "`address` that the kubelet reports; two, separated by a comma, for dual stack")
	flags.StringVar(&a.endpoint, "endpoint", "", "`HOST[:PORT]` of the API for this node's clients: a worker's kubelet, a control plane's admin.conf")
}

func (a *addressFlags) given() bool { return *a != addressFlags{} }

func (a *addressFlags) run(cmd *cobra.Command, g *cli.Globals, ignore []string) error {
	wanted, err := a.move()
	if err != nil {
		return err
	}
	var move *address.Move
	p, err := env.MovingNode(cmd, g, ignore, func(h *linux.Host, n *config.Node) (moving *config.Node, err error) {
		move, moving, err = address.New(h, n, wanted)
		return moving, err
	})
	if err != nil {
		return err
	}
	return p.Run(cmd.Context(), move.Phases(), nil)
}

func (a *addressFlags) move() (m address.Move, err error) {
	if a.advertise != "" {
		m.To, err = netip.ParseAddr(a.advertise)
		if err != nil || m.To.IsUnspecified() || m.To.IsLoopback() || m.To.Zone() != "" {
			return m, errors.Errorf("--advertise-address: %q is not an IP address that others can reach", a.advertise)
		}
	}
	if m.NodeIP = a.nodeIP; a.nodeIP != "" {
		for text := range strings.SplitSeq(a.nodeIP, ",") {
			if _, err := netip.ParseAddr(text); err != nil {
				return m, errors.Errorf("--node-ip: %q is not an IP address", text)
			}
		}
	}
	m.Server, err = a.server()
	return m, err
}

// server is the endpoint with a port.
func (a *addressFlags) server() (string, error) {
	if a.endpoint == "" {
		return "", nil
	}
	host, port, err := net.SplitHostPort(a.endpoint)
	if err != nil {
		host, port = strings.Trim(a.endpoint, "[]"), strconv.Itoa(config.DefaultBindPort)
	}
	if host == "" || port == "" {
		return "", errors.Errorf("--endpoint: %q is not a host with a port, such as api.example.org:6443", a.endpoint)
	}
	return net.JoinHostPort(host, port), nil
}
