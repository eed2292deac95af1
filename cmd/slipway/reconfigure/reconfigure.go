// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconfigure has the command `reconfigure`.
package reconfigure

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/phases/reconfigure"
	"github.com/slipway-k8s/slipway/phases/trial"
)

func New(g *cli.Globals) *cobra.Command {
	o := &config.ReconfigureFlags{}
	cmd := &cobra.Command{
		Use:   "reconfigure",
		Short: "Change the configuration of a live cluster, on trial",
		Long: "Change the configuration of a live cluster, beginning with this control plane. The file has the documents to change, with only\n" +
			"the fields to change: ClusterConfiguration, KubeletConfiguration, KubeProxyConfiguration. A field that is not mentioned stays,\n" +
			"null takes a field back to its default, and a list replaces the stored list.\n\n" +
			"The change is on trial until the new Pods run, the API is ready and takes a write, etcd has a quorum, the kubelet reports, and\n" +
			"all of that has lasted for ten seconds. Otherwise this node goes back to its previous files. The cluster's configuration is\n" +
			"stored last. If the run is killed on trial, or the machine restarts, systemd puts the node back.\n\n" +
			"--diff shows the whole change, and changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.ConfigFile == "" {
				return fault.New("reconfigure needs the documents to change", "name a file with --config, or - for standard input")
			}
			if err := putBackFirst(cmd, g, env.LivingControlPlane); err != nil {
				return err
			}
			p, run, err := load(cmd, g, o)
			if err != nil {
				return err
			}
			return p.Run(cmd.Context(), run.Phases(), nil)
		},
	}
	config.Bind(cmd.Flags(), "reconfigure", o)
	env.Reporting(g, cmd)
	cmd.AddCommand(newNode(g), newWayBack(g))
	return cmd
}

// putBackFirst does only that if a change was interrupted on trial, and nothing has put it back yet: another change is made from the
// API, which this one may have broken.
func putBackFirst(cmd *cobra.Command, g *cli.Globals, living living) error {
	return withInterrupted(cmd, g, living, func(p *env.Parts, r *trial.Record) error {
		if r == nil {
			return nil
		}
		if err := p.Run(cmd.Context(), reconfigure.PutBack(r, false), nil); err != nil {
			return err
		}
		return fault.New("this run only puts back the change that was interrupted on trial", "run the same command again to make its own change")
	})
}

func load(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags) (*env.Parts, *reconfigure.Run, error) {
	return makeRun(cmd, g, o, func(in *env.Input, api cluster.Cluster, self *config.JoinConfiguration) (*reconfiguring.Change, []string, error) {
		return reconfiguring.Load(cmd.Context(), api, in.File, self, in.Options)
	})
}

type loader func(*env.Input, cluster.Cluster, *config.JoinConfiguration) (*reconfiguring.Change, []string, error)

// makeRun makes this node's run of the change that load returns.
func makeRun(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags, load loader) (*env.Parts, *reconfigure.Run, error) {
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	self := reconfiguring.Self(in.Host)
	env.KeepMode(cmd, self)
	self.NodeRegistration.IgnorePreflightErrors = o.IgnorePreflightErrors
	if o.Patches != "" {
		self.Patches = &config.Patches{Directory: o.Patches}
	}
	api := env.ClusterOfNode(in.Host, "", config.APINode("", nil).Timeouts.KubernetesAPICall)
	change, warnings, err := load(in, api, self)
	if err != nil {
		return nil, nil, err
	}
	p := env.NewParts(g, change.Node, in.Host, warnings...)
	program, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	run, err := reconfigure.New(p.Env, change, program)
	return p, run, err
}
