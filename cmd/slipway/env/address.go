// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"net/netip"
	"net/url"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// MovingNode makes the parts of a command that moves this node, or its API, to another address. move returns the node there. The API may
// be down.
func MovingNode(cmd *cobra.Command, g *cli.Globals, ignore []string, move func(*linux.Host, *config.Node) (*config.Node, error)) (*Parts, error) {
	mode := ModeOfFlags(g, cmd)
	in, err := ReadInput(cmd.Context(), g, mode, "")
	if err != nil {
		return nil, err
	}
	self := thisnode.Current(in.Host)
	if !thisnode.IsControlPlane(in.Host) {
		self.ControlPlane = nil
	}
	KeepMode(cmd, self)
	self.NodeRegistration.IgnorePreflightErrors = ignore
	node, err := NodeFromFiles(in.Host, self)
	if err == nil {
		node, err = move(in.Host, node)
	}
	if err != nil {
		in.Host.Close()
		return nil, err
	}
	return mode.LivingParts(node, in.Host), nil
}

// movingEndpoint is the API server for a node whose address changes: any, if its kubeconfig leads to several, or else its own, whose
// certificate may still be for the former address.
func movingEndpoint(node *config.Node, real *linux.Host) (endpoint, serverName string) {
	if data, err := real.ReadFile(node.Paths.AdminKubeconfig); err == nil && leadsElsewhere(data, node) {
		return "", ""
	}
	return node.LocalEndpoint(), "kubernetes"
}

func leadsElsewhere(admin []byte, node *config.Node) bool {
	server, err := kubeconfig.URL(admin)
	if err != nil {
		return false
	}
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(u.Hostname())
	return err != nil || address != node.AdvertiseAddress && !slices.Contains(node.FormerAddresses, address)
}

// movingEtcd also asks the member on this host where it always listens. The other members don't move, so the API is asked for them
// once: while it's away, the answer would only come late.
func movingEtcd(node *config.Node, others func(context.Context) ([]string, error)) func(context.Context) ([]string, error) {
	var mu sync.Mutex
	var known []string
	return func(ctx context.Context) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		if known == nil {
			known, _ = others(ctx) // the API may be away
		}
		return append([]string{manifests.EtcdLocalURL(node)}, known...), nil
	}
}
