// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package encryption has the command `encryption`, for the encryption of Secrets in etcd: enable, rotate, disable, status and
// recall. phases/encryption does the work; internal/encryption decides which step comes next.
package encryption

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/phases/encryption"
	"github.com/slipway-k8s/slipway/phases/reconfigure"
	"github.com/slipway-k8s/slipway/phases/step"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("encryption", "Encrypt the cluster's Secrets in etcd", newEnable(g), newRotate(g), newDisable(g), newStatus(g), newRecall(g))
}

// everywhere is how all commands work with several control planes.
const everywhere = "\n\nWith several control planes, run it on each in turn, and again wherever it tells you to: each step starts once all\n" +
	"API servers have loaded the previous step. If it's interrupted, run it again. All API servers can read all Secrets at any time."

func newEnable(g *cli.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   string(encryption.Enable),
		Short: "Encrypt all Secrets",
		Long: "Encrypt all Secrets in etcd, with a new key in " + config.EncryptionFile + ". The API server restarts once, on trial: if that\n" +
			"fails, the change is rolled back on this node. It loads later changes of the file without a restart, within a minute." + everywhere,
	}
	o := &config.TrialFlags{}
	config.Bind(cmd.Flags(), "encryption enable", o)
	return command(g, cmd, &encryption.Run{Goal: encryption.Enable}, o)
}

func newRotate(g *cli.Globals) *cobra.Command {
	run := &encryption.Run{Goal: encryption.Rotate}
	cmd := &cobra.Command{
		Use:   string(encryption.Rotate),
		Short: "Encrypt all Secrets with a new key",
		Long: "Encrypt all Secrets in etcd with a new key, and retire the old key once no value in etcd uses it. Nothing restarts. Snapshots\n" +
			"of etcd may still need the old key: " + config.EncryptionDir + "/keyring keeps it, sealed with sa.key." + everywhere,
	}
	cmd.Flags().BoolVar(&run.Again, "again", false, "begin another rotation even if the key is less than an hour old")
	return command(g, cmd, run, nil)
}

func newDisable(g *cli.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   string(encryption.Disable),
		Short: "Stop encrypting Secrets, and decrypt them all",
		Long: "Stop encrypting Secrets, and decrypt them all in etcd. Nothing restarts: the API server keeps its flags, with a file that has no\n" +
			"key." + everywhere,
	}
	return command(g, cmd, &encryption.Run{Goal: encryption.Disable}, nil)
}

// command completes a command. o has the flags of one that restarts the API server.
func command(g *cli.Globals, cmd *cobra.Command, run *encryption.Run, o *config.TrialFlags) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := finishFirst(cmd, g, o); err != nil {
			return err
		}
		p, change, err := load(cmd, g, o)
		if err != nil {
			return err
		}
		list, err := workflow(p.Env, change, run)
		if err != nil {
			return err
		}
		return p.Run(cmd.Context(), list, nil)
	}
	return cmd
}

// workflow restarts the API server on trial, as for any other change of the configuration, if it or the cluster's configuration doesn't
// have the flags yet.
func workflow(e *step.Env, change *reconfiguring.Change, run *encryption.Run) ([]step.Phase, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	restart := reconfigure.New(change, program)
	if run.Goal != encryption.Enable || encryption.Reads(e) && len(change.Fields) == 0 {
		return run.Phases(nil), nil
	}
	return run.Phases(restart.APIServerPhases()), nil
}

func load(cmd *cobra.Command, g *cli.Globals, o *config.TrialFlags) (*env.Parts, *reconfiguring.Change, error) {
	in, err := env.ReadInput(cmd.Context(), g, env.ModeOfFlags(g, cmd), "")
	if err != nil {
		return nil, nil, err
	}
	l := reconfiguring.NewLoader(in.Host, env.ClusterOfNode(in.Host, "", config.DefaultLimits().KubernetesAPICall), in.Options)
	if o != nil {
		o.Complete(l.Self)
	}
	change, warnings, err := l.Encryption(cmd.Context())
	if err != nil {
		in.Host.Close()
		return nil, nil, err
	}
	return env.NewParts(g, change.Node, in.Host, warnings...), change, nil
}

// finishFirst restores a lost file with keys, and ends a restart of the API server that was interrupted, if the unit that watches
// hasn't done so yet. It also refuses a host that isn't a control plane.
func finishFirst(cmd *cobra.Command, g *cli.Globals, o *config.TrialFlags) error {
	p, err := env.NewRunningControlPlaneParts(cmd, g)
	if err != nil {
		return err
	}
	defer p.Close()
	if o != nil {
		p.Ignore(o.IgnorePreflightErrors)
	}
	unfinished, err := reconfigure.Unfinished(p.Env)
	if err != nil {
		return err
	}
	var list []step.Phase
	if unfinished != nil { // it may be why the API server doesn't come up, so the file comes first, and the wait last
		list = reconfigure.FinishAndAwaitAPI()
	}
	if list, err = encryption.RestoreLost(p.Env, list); err != nil {
		return err
	}
	if len(list) == 0 {
		return nil
	}
	return p.Run(cmd.Context(), list, nil)
}
