// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases"
)

func runnableJoinPhase(g *globals, p phases.Phase, use string, wrap wrapPhase) *cobra.Command {
	o := &joinOptions{anyRuntime: !phases.ChoosesRuntime(p)}
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

// loadJoined is for phases after discovery. They use the configuration file, if one is given, and the files that earlier
// phases have written here. Phases of control planes also read the cluster's configuration, as its administrator.
func loadJoined(cmd *cobra.Command, g *globals, o *joinOptions, p phases.Phase) (*parts, error) {
	o.Given = given(cmd.Flags())
	in, err := readNodeInput(cmd.Context(), g, modeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	o.relax(in)
	self, warnings := o.self(in.host), []string(nil)
	if in.file != nil {
		if self, warnings, err = config.LoadJoin(in.file, o.Flags, in.options); err != nil {
			return nil, err
		}
	}
	m := modeOfJoin(g, self)
	var node *config.Node
	var more []string
	if self.ControlPlane != nil && slices.Contains(p.Flags, "control-plane") {
		node, more, err = m.joined(cmd.Context(), in.host, self, in.options)
	} else {
		node, err = joining.StartedNode(in.host, self, in.options)
	}
	if err != nil {
		return nil, err
	}
	parts := m.parts(node, in.host)
	warn(parts.env.UI, slices.Concat(warnings, more))
	return parts, nil
}

// self describes the node by the command line and this host's files.
func (o *joinOptions) self(h host.Host) *config.JoinConfiguration {
	self := thisnode.Current(h)
	o.keepMode(self)
	r, at := &self.NodeRegistration, &self.ControlPlane.LocalAPIEndpoint
	r.CRISocket, r.Name = cmp.Or(o.CRISocket, r.CRISocket), cmp.Or(o.NodeName, r.Name)
	at.AdvertiseAddress = cmp.Or(o.APIServerAdvertiseAddress, at.AdvertiseAddress)
	if slices.Contains(o.Given, "apiserver-bind-port") {
		at.BindPort = o.APIServerBindPort
	}
	if o.Patches != "" {
		self.Patches = &config.Patches{Directory: o.Patches}
	}
	if !o.ControlPlane && !thisnode.IsControlPlane(h) {
		self.ControlPlane = nil
	}
	return self
}
