// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/reconfigure"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// lockInterval is how often the watch tries to take the node's lock, which a live run has.
const lockInterval = time.Second

// newTrialRollback makes the command of the units that put a node back (package trial).
func newTrialRollback(g *cli.Globals) *cobra.Command {
	files := false
	cmd := &cobra.Command{
		Use:    "way-back",
		Short:  "Put back a change that was interrupted on trial, for the units that a change leaves on its node",
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if files {
				return withUnfinished(cmd, g, env.NewRunningNodeParts, func(p *env.Parts, r *trial.Record) error {
					if r == nil {
						return nil
					}
					return p.Run(cmd.Context(), reconfigure.RestoreFiles(), nil)
				})
			}
			locked := (*host.LockedError)(nil)
			watch := retry.Policy{First: lockInterval, Retryable: func(err error) bool { return errors.As(err, &locked) }}
			err := watch.Do(cmd.Context(), func(ctx context.Context) error {
				return withUnfinished(cmd, g, env.NewRunningNodeParts, func(p *env.Parts, _ *trial.Record) error {
					return p.Run(ctx, reconfigure.Watch(), nil)
				})
			})
			if cmd.Context().Err() != nil && errors.As(err, &locked) {
				return nil // the run has stopped it
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&files, "files", false, "only put back the files, before the kubelet starts")
	return cmd
}

// living makes the parts of a command on a running node.
type living func(*cobra.Command, *cli.Globals) (*env.Parts, error)

// withUnfinished calls do with this node's unfinished change; nil if there's none. Its configuration may have broken the API, so the
// parts need only this host. The workflows read the record again, once they have the node's lock.
func withUnfinished(cmd *cobra.Command, g *cli.Globals, living living, do func(*env.Parts, *trial.Record) error) error {
	p, err := living(cmd, g)
	if err != nil {
		return err
	}
	defer p.Close()
	unfinished, err := reconfigure.Unfinished(p.Env)
	if err != nil {
		return err
	}
	return do(p, unfinished)
}
