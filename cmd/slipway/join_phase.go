// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases"
)

func runnableJoinPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &joinOptions{}
	cmd := &cobra.Command{Use: use, Short: p.Summary, Args: takes(0, 0)}
	load := func([]string) (*parts, error) { return loadJoined(cmd, g, o, p) }
	if slices.Contains(p.Flags, "discovery-file") {
		cmd.Use += " [HOST:PORT]"
		cmd.Args = takes(0, 1)
		load = func(args []string) (*parts, error) { return loadJoin(cmd, g, o, args) }
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		parts, err := load(args)
		if err != nil {
			return err
		}
		return parts.run(cmd.Context(), []phases.Phase{wrap(p)}, nil)
	}
	o.BindPhase(cmd.Flags(), "join", phaseFlags(p.Flags))
	reporting(g, cmd)
	return cmd
}

// loadJoined is for phases that need not discover the cluster: they go by the
// configuration, if one is given, by what earlier phases left here, and where
// they need to know the cluster by what it tells the administrator.
func loadJoined(cmd *cobra.Command, g *globals, o *joinOptions, p phases.Phase) (*parts, error) {
	o.Given = given(cmd.Flags())
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return nil, err
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, err
	}
	opts := loadOptions(facts, o.DryRun)
	self, warnings := o.self(real), []string(nil)
	if src != nil {
		if self, warnings, err = config.LoadJoin(src, o.Flags, opts); err != nil {
			return nil, err
		}
	}
	var node *config.Node
	var more []string
	switch knows := self.ControlPlane != nil && slices.Contains(p.Flags, "control-plane"); {
	case knows && asksCluster(g, self.DryRun):
		node, more, err = phases.JoinedNode(cmd.Context(), administrator(real), self, opts)
	case knows:
		node, err = phases.AssumedControlPlane(self, opts)
	default:
		node, err = phases.StartedNode(real, self, opts)
	}
	if err != nil {
		return nil, err
	}
	parts := newParts(g, node, real, node.DryRun)
	warn(parts.env.UI, slices.Concat(warnings, more))
	return parts, nil
}

// self is what the command line and this host's files say of the node.
func (o *joinOptions) self(h host.Host) *config.JoinConfiguration {
	self := phases.ThisNode(h)
	self.DryRun = o.DryRun
	r, at := &self.NodeRegistration, &self.ControlPlane.LocalAPIEndpoint
	r.CRISocket, r.Name = cmp.Or(o.CRISocket, r.CRISocket), cmp.Or(o.NodeName, r.Name)
	at.AdvertiseAddress = cmp.Or(o.APIServerAdvertiseAddress, at.AdvertiseAddress)
	if slices.Contains(o.Given, "apiserver-bind-port") {
		at.BindPort = o.APIServerBindPort
	}
	if o.Patches != "" {
		self.Patches = &config.Patches{Directory: o.Patches}
	}
	if !o.ControlPlane && !phases.IsControlPlane(h) {
		self.ControlPlane = nil
	}
	return self
}
