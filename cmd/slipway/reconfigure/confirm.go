// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/reconfigure"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// answer tells the change on trial what becomes of it, and waits until that's done. The run that waits for the answer holds the
// node's lock, or the unit that watches does; if neither runs, this process does what the answer says.
func answer(cmd *cobra.Command, g *cli.Globals, o *config.ReconfigureFlags, says trial.Answer) error {
	asked, locked := false, (*host.LockedError)(nil)
	until := retry.Policy{First: lockInterval, Retryable: func(err error) bool { return errors.As(err, &locked) }}
	return until.Do(cmd.Context(), func(ctx context.Context) error {
		p, err := env.NewRunningNodeParts(cmd, g)
		if err != nil {
			return err
		}
		defer p.Close()
		p.Ignore(o.IgnorePreflightErrors)
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
	err := withUnfinished(cmd, g, env.NewRunningNodeParts, func(_ *env.Parts, r *trial.Record) error {
		waits = r != nil && r.AwaitsConfirmation()
		return nil
	})
	if err != nil {
		return err
	}
	if waits {
		return answer(cmd, g, o, trial.Refused)
	}
	c := changing{o: o, living: env.NewRunningNodeParts, phases: (*reconfigure.Run).RevertPhases, load: func(in *env.Input, l reconfiguring.Loader) (*reconfigure.Run, []string, error) {
		return reconfigure.NewRevert(cmd.Context(), in.Host, l)
	}}
	return c.run(cmd, g)
}

// finishFirst ends an earlier change whose run is gone, so that another one can begin. ignore has the checks whose errors don't keep it
// from going back.
func finishFirst(cmd *cobra.Command, g *cli.Globals, living living, ignore []string) error {
	found := false
	err := withUnfinished(cmd, g, living, func(p *env.Parts, r *trial.Record) error {
		if found = r != nil; !found {
			return nil
		}
		if err := reconfigure.CheckAnswered(p.Env, r); err != nil { // before the run that waits for the answer says that it has the node's lock
			return err
		}
		p.Ignore(ignore)
		return p.Run(cmd.Context(), reconfigure.FinishAndAwaitAPI(), nil)
	})
	if err != nil || !found {
		return err
	}
	return withUnfinished(cmd, g, living, func(_ *env.Parts, r *trial.Record) error {
		if r == nil {
			return nil
		}
		return fault.New("this plan only finishes the interrupted change of "+ui.Time(r.Began)+"; a new change starts from the result",
			"finish it with `slipway reconfigure node`, then make the plan again")
	})
}
