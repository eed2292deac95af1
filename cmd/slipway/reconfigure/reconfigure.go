// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconfigure has the command `reconfigure`. It changes a live cluster's configuration, brings other nodes to it, moves a
// node to another address, and confirms or reverts a change. The hidden `way-back` is for the units a change on trial leaves on
// its node.
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
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

func New(g *cli.Globals) *cobra.Command {
	o := &config.ReconfigureFlags{}
	cmd := &cobra.Command{
		Use:   "reconfigure",
		Short: "Change the configuration of a live cluster, on trial",
		Long: "Change the configuration of a live cluster, beginning with this control plane. The file lists only the fields to change, in\n" +
			"their documents: ClusterConfiguration, KubeletConfiguration, KubeProxyConfiguration. Fields you leave out stay as they are, null\n" +
			"resets a field to its default, and a list replaces the stored list. --edit opens the stored documents in KUBE_EDITOR or EDITOR\n" +
			"instead; removing a field resets it to its default. --profile adds the settings of a hardening profile to the cluster's and to\n" +
			"those of --config, and writes its files; existing settings stay.\n\n" +
			"The change is on trial until the new Pods run, the API is ready and takes a write, etcd has a quorum, the kubelet reports, and\n" +
			"all of that has lasted for ten seconds. If not, Slipway restores this node's previous files. The cluster's\n" +
			"configuration is stored last. If the run is killed on trial, or the machine restarts, systemd restores the files.\n\n" +
			"With --try, a change that works stays on trial for that time, and is rolled back on this node unless you run `slipway reconfigure\n" +
			"--confirm` there. --revert takes back this node's last change.\n\n" +
			"--diff shows the whole change, and changes nothing.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.Confirm:
				return answer(cmd, g, trial.Confirmed)
			case o.Revert:
				return revert(cmd, g, o)
			case o.ConfigFile == "" && o.Profile == "" && !o.Edit:
				return fault.New("reconfigure needs the documents to change",
					"name a file with --config, or - for standard input; or a hardening profile with --profile; or edit the configuration with --edit")
			}
			e := &editing{}
			err := change(cmd, g, o, env.LivingControlPlane, (*reconfigure.Run).Phases, e.loader(cmd, g, o))
			return e.end(g, err)
		},
	}
	config.Bind(cmd.Flags(), "reconfigure", o)
	cmd.MarkFlagsMutuallyExclusive("config", "edit", "confirm", "revert")
	for _, other := range []string{"edit", "confirm", "revert"} {
		cmd.MarkFlagsMutuallyExclusive("profile", other)
	}
	cmd.MarkFlagsMutuallyExclusive("confirm", "try")
	env.Reporting(g, cmd)
	cmd.AddCommand(newNode(g), newWayBack(g))
	return cmd
}

type loader func(*env.Input, cluster.Cluster, *config.JoinConfiguration) (*reconfigure.Run, []string, error)

// loader loads the change in the documents of --config, with the settings of --profile, or lets a person make it.
func (e *editing) loader(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags) loader {
	return func(in *env.Input, api cluster.Cluster, self *config.JoinConfiguration) (*reconfigure.Run, []string, error) {
		var c *reconfiguring.Change
		var warnings []string
		var err error
		switch {
		case o.Edit:
			c, warnings, err = e.begin(cmd.Context(), g, in, api, self)
		case o.Profile != "":
			c, warnings, err = reconfiguring.LoadProfile(cmd.Context(), api, o.Profile, in.File, self, in.Options)
		default:
			c, warnings, err = reconfiguring.Load(cmd.Context(), api, in.File, self, in.Options)
		}
		return reconfigure.New(c, ""), warnings, err
	}
}

// change makes the change of the run that load returns, once earlier ones are over.
func change(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags, living living, workflow func(*reconfigure.Run) []step.Phase, load loader) error {
	if o.Try < 0 || o.Try > trial.LongestWait {
		return fault.New("--try "+o.Try.String()+" is not between 0 and "+trial.LongestWait.String(), "give the time you need to look at the change, such as --try 2m")
	}
	if err := finishFirst(cmd, g, living); err != nil {
		return err
	}
	p, run, err := makeRun(cmd, g, o, load)
	if err != nil {
		return err
	}
	return p.Run(cmd.Context(), workflow(run), nil)
}

func makeRun(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags, load loader) (*env.Parts, *reconfigure.Run, error) {
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	self := reconfiguring.Self(in.Host)
	env.KeepMode(cmd, self)
	o.Complete(self)
	api := env.ClusterOfNode(in.Host, "", config.APINode("", nil).Timeouts.KubernetesAPICall)
	run, warnings, err := load(in, api, self)
	if err != nil {
		return nil, nil, err
	}
	p := env.NewParts(g, run.Node, in.Host, warnings...)
	run.Try, run.Wait = o.Try, p.Confirm
	run.Program, err = os.Executable()
	return p, run, err
}
