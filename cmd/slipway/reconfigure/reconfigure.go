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
				return answer(cmd, g, o, trial.Confirmed)
			case o.Revert:
				return revert(cmd, g, o)
			case o.ConfigFile == "" && o.Profile == "" && !o.Edit:
				return fault.New("reconfigure needs the documents to change",
					"name a file with --config, or - for standard input; or a hardening profile with --profile; or edit the configuration with --edit")
			}
			e := &editing{}
			c := changing{o: o, living: env.NewRunningControlPlaneParts, phases: (*reconfigure.Run).Phases, load: e.loader(cmd, g, o)}
			return e.end(g, c.run(cmd, g))
		},
	}
	config.Bind(cmd.Flags(), "reconfigure", o)
	cmd.MarkFlagsMutuallyExclusive("config", "edit", "confirm", "revert")
	for _, other := range []string{"edit", "confirm", "revert"} {
		cmd.MarkFlagsMutuallyExclusive("profile", other)
	}
	cmd.MarkFlagsMutuallyExclusive("confirm", "try")
	env.Reporting(g, cmd)
	cmd.AddCommand(newNode(g), newTrialRollback(g))
	return cmd
}

// loader loads the change in the documents of --config, with the settings of --profile, or lets a person make it.
func (e *editing) loader(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags) loader {
	return func(in *env.Input, l reconfiguring.Loader) (*reconfigure.Run, []string, error) {
		var c *reconfiguring.Change
		var warnings []string
		var err error
		switch {
		case o.Edit:
			c, warnings, err = e.begin(cmd.Context(), g, l)
		case o.Profile != "":
			c, warnings, err = l.Profile(cmd.Context(), o.Profile, in.File)
		default:
			c, warnings, err = l.Load(cmd.Context(), in.File)
		}
		return reconfigure.New(c, ""), warnings, err
	}
}

type loader func(*env.Input, reconfiguring.Loader) (*reconfigure.Run, []string, error)

// changing is a command that makes the change of the run that load returns.
type changing struct {
	o      *config.ReconfigureFlags
	living living
	load   loader
	phases func(*reconfigure.Run) []step.Phase
}

// run makes the change once earlier ones are over.
func (c changing) run(cmd *cobra.Command, g *cli.Globals) error {
	if try := c.o.Try; try < 0 || try > trial.LongestWait {
		return fault.New("--try "+try.String()+" is not between 0 and "+trial.LongestWait.String(), "give the time you need to look at the change, such as --try 2m")
	}
	if err := finishFirst(cmd, g, c.living, c.o.IgnorePreflightErrors); err != nil {
		return err
	}
	p, run, err := c.parts(cmd, g)
	if err != nil {
		return err
	}
	return p.Run(cmd.Context(), c.phases(run), nil)
}

func (c changing) parts(cmd *cobra.Command, g *cli.Globals) (*env.Parts, *reconfigure.Run, error) {
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), c.o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	l := reconfiguring.NewLoader(in.Host, env.ClusterOfNode(in.Host, "", config.DefaultLimits().KubernetesAPICall), in.Options)
	env.KeepMode(cmd, l.Self)
	c.o.Complete(l.Self)
	run, warnings, err := c.load(in, l)
	if err != nil {
		return nil, nil, err
	}
	p := env.NewParts(g, run.Node, in.Host, warnings...)
	run.Try, run.Wait = c.o.Try, p.Confirm
	run.Program, err = os.Executable()
	return p, run, err
}
