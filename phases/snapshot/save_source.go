// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// awaitEtcd waits until a member of etcd works: a timer may fire at boot, while the kubelet is still starting etcd.
func awaitEtcd(ctx context.Context, env *step.Env) error {
	limit, said := env.Config.Timeouts.ControlPlaneComponentHealthCheck, false
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := node.Poll(limited, func(ctx context.Context) error {
		all, err := etcd.AskHealth(ctx, env.Etcd)
		if err == nil && !slices.ContainsFunc(all, func(h etcd.Health) bool { return h.Err == nil }) {
			err = errors.New("no member of etcd is healthy: " + etcd.DescribeHealth(all, ""))
		}
		if err != nil && !said {
			said = true
			env.UI.Printf("Waiting for etcd, up to %s: %v", limit, err)
		}
		return err
	})
	return fault.WithRemedy(err, "`slipway diagnose` on the control planes says what is wrong")
}

// awaitTurn waits for this host's turn. Only etcd's list of members decides it.
func awaitTurn(ctx context.Context, env *step.Env) error {
	for {
		all, err := etcd.AskHealth(ctx, env.Etcd)
		if err != nil {
			return err
		}
		own, unread := node.OwnIdentity(env)
		position := own.Find(etcd.MembersOf(all))
		if position < 0 && unread != nil {
			return errors.WithMessagef(unread, "etcd has no member at %s, the address in this host's static Pod", own)
		}
		if position < 0 {
			return fault.New(fmt.Sprintf("etcd has no member at %q, the address in this host's static Pod", own),
				"`slipway diagnose` says what is wrong with this node")
		}
		now := env.Host.Now()
		wait := snapshots.UntilTurn(now, position, len(all))
		if wait == 0 {
			return nil
		}
		env.UI.Printf("Waiting until %s, so that only one of the %d members is saved at a time", now.Add(wait).UTC().Format(time.TimeOnly+" MST"), len(all))
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// chooseSource picks the member to save: a healthy follower if possible, since the leader has more to do, and among those this
// host's. A follower far behind comes after the leader. With mustWork, it's an error if no member is healthy.
func chooseSource(ctx context.Context, env *step.Env, mustWork bool) (etcd.Health, error) {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return etcd.Health{}, err
	}
	own := node.OwnPeerURL(env, etcd.MembersOf(all))
	best := slices.MinFunc(all, func(a, b etcd.Health) int { return sourceRank(all, a, own) - sourceRank(all, b, own) })
	const remedy = "`slipway diagnose` on the control planes says what is wrong"
	switch {
	case !best.Answers || best.Learner:
		return best, fault.New("no voting member of etcd answers: "+etcd.DescribeHealth(all, ""), remedy)
	case best.Err != nil && mustWork:
		return best, fault.New("no member of etcd is healthy, so there is nothing new to save: "+etcd.DescribeHealth(all, ""), remedy)
	case best.Err != nil:
		env.UI.Warn(fmt.Sprintf("member %s is not healthy (%v): its snapshot may lack what other members have", best.Label(), best.Err), remedy)
	case corrupt(best):
		env.UI.Warn("etcd has raised the alarm CORRUPT: its members' data differ, and this snapshot has the data of "+best.Label(), remedy)
	case etcd.FarBehind(all, best):
		env.UI.Warn(fmt.Sprintf("member %s is %d entries behind: its snapshot lacks the newest changes", best.Label(), etcd.Lag(all, best)), remedy)
	}
	return best, nil
}

// sourceRank orders members as sources of a snapshot; 0 is the best.
func sourceRank(all []etcd.Health, h etcd.Health, own string) (count int) {
	for i, bad := range []bool{!h.At(own), h.Leads(), etcd.FarBehind(all, h), corrupt(h), h.Err != nil, !h.Answers, h.Learner} {
		if bad {
			count += 1 << i
		}
	}
	return count
}

// corrupt reports whether the member itself has raised the alarm.
func corrupt(h etcd.Health) bool {
	return slices.ContainsFunc(h.Status.Alarms, func(a etcd.Alarm) bool { return a.Kind == "CORRUPT" && a.Member == h.ID })
}
