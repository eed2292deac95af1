// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// NewRunningControlPlaneParts is NewRunningNodeParts on a control plane.
func NewRunningControlPlaneParts(cmd *cobra.Command, g *cli.Globals) (*Parts, error) {
	return living(cmd, g, func(isControlPlane bool) error {
		if !isControlPlane {
			return fault.New("this host is not a control plane: it has no "+thisnode.APIServerManifest, "run this on a control plane, as root")
		}
		return nil
	})
}

// NewRunningNodeParts makes the parts of a command looking after a running cluster from this node. It's known by this host's
// own files, so the API may be down.
func NewRunningNodeParts(cmd *cobra.Command, g *cli.Globals) (*Parts, error) {
	return living(cmd, g, func(bool) error { return nil })
}

func living(cmd *cobra.Command, g *cli.Globals, check func(isControlPlane bool) error) (*Parts, error) {
	mode := ModeOfFlags(g, cmd)
	in, err := ReadInput(cmd.Context(), g, mode, "")
	if err != nil {
		return nil, err
	}
	isControlPlane := thisnode.IsControlPlane(in.Host)
	if err := check(isControlPlane); err != nil {
		in.Host.Close()
		return nil, err
	}
	self := thisnode.Current(in.Host)
	if !isControlPlane {
		self.ControlPlane = nil
	}
	KeepMode(cmd, self)
	n, err := NodeFromFiles(in.Host, self)
	if err != nil {
		in.Host.Close()
		return nil, err
	}
	return mode.LivingParts(n, in.Host), nil
}

// ownEtcdCluster tells the cluster of this host's etcd by its data.
func ownEtcdCluster(h host.Host, n *config.Node) func() (uint64, error) {
	return func() (uint64, error) { return node.OwnEtcdCluster(&step.Env{Config: n, Host: h}) }
}

// NodeFromFiles describes this node of a running cluster by its own files.
func NodeFromFiles(h host.Host, self *config.JoinConfiguration) (*config.Node, error) {
	n, _, err := NodeFrom(config.DefaultCluster(), self)
	if err != nil {
		return nil, err
	}
	external, err := node.ExternalEtcd(&step.Env{Config: n, Host: h})
	if err != nil {
		return nil, err
	}
	return n.With(func(n *config.Node) {
		n.Paths.PKI = thisnode.CertificatesDir(h)
		n.Cluster.CertificatesDir, n.Cluster.Etcd.External = n.Paths.PKI, external
	}), nil
}
