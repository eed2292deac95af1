// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/reconfigure"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// answer tells the change on trial what becomes of it, and waits until that's done. The run that waits for the answer holds the
// node's lock, or the unit that watches does; if neither runs, this process does what the answer says.
func answer(cmd *cobra.Command, g *cli.Globals, says trial.Answer) error {
	asked, locked := false, (*host.LockedError)(nil)
	until := retry.Policy{First: lockInterval, Passes: func(err error) bool { return errors.As(err, &locked) }}
	return until.Do(cmd.Context(), func(ctx context.Context) error {
		p, err := env.LivingNode(cmd, g)
		if err != nil {
			return err
		}
		defer p.Close()
		workflow, err := reconfigure.Answer(p.Env, says, asked)
		if err != nil {
			return err
		}
		asked = true
		return p.Run(ctx, workflow, nil)
	})
}

// revert puts back the change on trial or, if there's none, the last completed change.
func revert(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags) error {
	waits := false
	err := withUnfinished(cmd, g, env.LivingNode, func(_ *env.Parts, r *trial.Record) error {
		waits = r != nil && r.Waits()
		return nil
	})
	if err != nil {
		return err
	}
	if waits {
		return answer(cmd, g, trial.Refused)
	}
	return change(cmd, g, o, env.LivingNode, (*reconfigure.Run).RevertPhases, func(in *env.Input, api cluster.Cluster, self *config.JoinConfiguration) (*reconfigure.Run, []string, error) {
		return reconfigure.Reverting(cmd.Context(), in.Host, api, self, in.Options)
	})
}

// finishFirst ends an earlier change whose run is gone. If it's put back, this run does only that: another change is made from the
// API, which the earlier one may have broken.
func finishFirst(cmd *cobra.Command, g *cli.Globals, living living) error {
	return withUnfinished(cmd, g, living, func(p *env.Parts, r *trial.Record) error {
		if r == nil {
			return nil
		}
		if err := reconfigure.MayWait(p.Env, r); err != nil { // before the run that waits for the answer says that it has the node's lock
			return err
		}
		if err := p.Run(cmd.Context(), reconfigure.Finish(false), nil); err != nil {
			return err
		}
		if now, err := r.Now(p.Env); err != nil || now.State == trial.Counts {
			return err
		}
		return fault.New("this run only puts back the change that was interrupted on trial", "run the same command again to make its own change")
	})
}
