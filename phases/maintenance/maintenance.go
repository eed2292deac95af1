// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package maintenance has two workflows for a working etcd. Defragmentation is `etcd defrag`: it rewrites the members' databases
// without their free space, one at a time, after making sure that each has room. NewRemoval finds a member for
// `etcd member remove` and fails unless etcd keeps its quorum; Removal.Phases removes it. Both first ask all members for their
// health. Start at Defragmentation.Phases and NewRemoval.
package maintenance

import (
	"context"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// refuseExternal keeps other people's etcd as it is.
func refuseExternal(env *step.Env) error {
	if env.Config.Cluster.Etcd.External == nil {
		return nil
	}
	return fault.New("this cluster's etcd is external, and Slipway doesn't change it", "maintain it with its own tools")
}

// ask returns the members with their health.
func ask(ctx context.Context, env *step.Env) ([]etcd.Health, error) {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	return all, fault.WithRemedy(err, "`slipway diagnose` on the control planes says what is wrong with etcd")
}

// awaitFullHealth waits for all members to work, as one may be restarting, or they elect a leader.
func awaitFullHealth(ctx context.Context, env *step.Env) (all []etcd.Health, err error) {
	limited, cancel := context.WithTimeout(ctx, min(etcd.HealthTimeout, env.Config.Timeouts.EtcdAPICall))
	defer cancel()
	err = node.Poll(limited, func(ctx context.Context) (err error) {
		if all, err = ask(ctx, env); err != nil {
			return err
		}
		if slices.ContainsFunc(all, func(m etcd.Health) bool { return m.Err != nil }) {
			return errors.Errorf("not all members of etcd work: %s", etcd.DescribeHealth(all, ""))
		}
		if etcd.HasAlarm(all, "CORRUPT") {
			return errors.New("etcd has the alarm CORRUPT")
		}
		return nil
	})
	return all, fault.WithRemedy(err, "`slipway etcd status` says what each member needs")
}
