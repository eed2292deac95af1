// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"maps"
	"reflect"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// Unfinished returns this node's last change if a run has still to store it or to put it back; nil if there's none.
func Unfinished(env *step.Env) (*trial.Record, error) { return trial.Unfinished(env) }

// storable reports whether to store an unfinished change: it has proven itself, and was confirmed if it had to be.
func storable(env *step.Env, unfinished *trial.Record) (bool, error) {
	answer, err := unfinished.Answered(env)
	return unfinished.State == trial.Storing || unfinished.AwaitsConfirmation() && answer == trial.Confirmed, err
}

// finish is the workflow to store an unfinished change, or put it back. byWatch says that the watching unit runs it. It
// reads the record under the node's lock: while it waited for that, the run may have come further. If another run has ended the
// change, only that run's end may be missing.
func finish(byWatch bool) []step.Phase {
	return []step.Phase{{Name: "finish-change", Summary: "Store the unfinished change if it was confirmed, or else put it back", Run: func(ctx context.Context, env *step.Env) error {
		unfinished, err := trial.Unfinished(env)
		if err != nil {
			return err
		}
		if unfinished == nil {
			return cleanUpInterrupted(ctx, env, byWatch)
		}
		stays, err := storable(env, unfinished)
		switch {
		case err != nil:
			return err
		case stays:
			return finishStoring(ctx, env, unfinished, byWatch)
		case !byWatch:
			if err := CheckAnswered(env, unfinished); err != nil {
				return err
			}
		}
		return rollBackUnfinished(ctx, env, unfinished, byWatch)
	}}}
}

// FinishAndAwaitAPI is Finish for a run about to make another change, from the API, which the unfinished one may have broken.
func FinishAndAwaitAPI() []step.Phase {
	return append(finish(false), step.Phase{Name: "await-api", Summary: "Wait until the API answers", Run: func(ctx context.Context, env *step.Env) error {
		return fault.WithRemedy(env.Cluster.Ready(ctx), "the interrupted change has ended; once the API answers, run the same command again")
	}})
}

// CheckAnswered fails if there's still time to confirm a change that nobody has answered.
func CheckAnswered(env *step.Env, unfinished *trial.Record) error {
	answer, err := unfinished.Answered(env)
	if err == nil && unfinished.AwaitsConfirmation() && answer == trial.Unconfirmed && env.Host.Now().Before(*unfinished.Until) {
		return fault.New("a change is on trial on this node until "+ui.Time(*unfinished.Until),
			"`slipway reconfigure --confirm` keeps it, and `slipway reconfigure --revert` puts it back")
	}
	return err
}

// RestoreFiles is the workflow to put back only the files of an unfinished change, before the kubelet starts.
func RestoreFiles() []step.Phase {
	return []step.Phase{{Name: "put-files-back", Summary: "Put back the files of the unfinished change", Run: func(_ context.Context, env *step.Env) error {
		unfinished, err := trial.Unfinished(env)
		if err != nil || unfinished == nil {
			return err
		}
		stays, err := storable(env, unfinished)
		if err != nil || stays {
			return err
		}
		if unfinished.Cause == "" {
			unfinished.Cause = "the machine restarted while the change was on trial"
		}
		return unfinished.RestoreFiles(env)
	}}}
}

// rollBackUnfinished needs no API until the node is back: the change may have broken it.
func rollBackUnfinished(ctx context.Context, env *step.Env, record *trial.Record, byWatch bool) error {
	if record.Cause == "" {
		record.Cause = causeOf(env, record)
	}
	env.UI.Warnf("putting back %s: %s", nameOf(record), record.Cause)
	take := node.AcquireLeaseIfReachable
	if byWatch {
		take = node.ResumeLease
	}
	turn, err := acquireLease(ctx, env, take)
	if err != nil {
		return err
	}
	err = rollBack(ctx, env, turn, record)
	if err := turn.Release(ctx, env, err); err != nil {
		return err
	}
	if turn.Held {
		return trial.RemoveUnits(ctx, env, byWatch)
	}
	return cleanUpInterrupted(ctx, env, byWatch)
}

// cleanUpInterrupted cleans up after a killed run: its turn, as soon as the API says whose it is, and the units. While the API is
// away, systemd runs the watch again.
func cleanUpInterrupted(ctx context.Context, env *step.Env, byWatch bool) error {
	if env.Config.ControlPlane {
		if err := env.Cluster.Ready(ctx); err != nil {
			return err
		}
		if err := releaseInterruptedLease(ctx, env); err != nil {
			return err
		}
	}
	return trial.RemoveUnits(ctx, env, byWatch)
}

func causeOf(env *step.Env, record *trial.Record) string {
	answer, err := record.Answered(env)
	switch {
	case err == nil && answer == trial.Refused:
		return "`slipway reconfigure --revert` ended its trial"
	case record.AwaitsConfirmation():
		return "nobody had confirmed it by " + ui.Time(*record.Until)
	}
	return "its run was interrupted on trial"
}

// rollBack makes this node and the add-ons run as before a change.
func rollBack(ctx context.Context, env *step.Env, turn node.Lease, record *trial.Record) error {
	if err := record.RollBack(ctx, env, turn); err != nil {
		return err
	}
	// Without ConfigMaps, the add-ons' settings were the same before the change.
	if record.Addons && len(record.ConfigMaps) > 0 {
		record.FilesRestored = true // another try then restarts nothing
		if err := record.Set(env, trial.Reverting); err != nil {
			return err
		}
		if err := rollBackAddons(ctx, env, record); err != nil {
			return err
		}
	}
	return record.Set(env, trial.Reverted)
}

// rollBackAddons changes the add-ons the other way around.
func rollBackAddons(ctx context.Context, env *step.Env, record *trial.Record) error {
	if err := env.Cluster.Ready(ctx); err != nil {
		return err
	}
	before, after := textsOf(record)
	l := reconfiguring.NewLoader(env.Host, env.Cluster, config.Options{Facts: config.HostFacts{Hostname: env.Config.Name}, AnyVersion: true})
	if env.Config.PatchesDir != "" {
		l.Self.Patches = &config.Patches{Directory: env.Config.PatchesDir}
	}
	change, err := l.Between(after, before)
	if err != nil {
		return err
	}
	kept, err := proxySettingsOfOthers(ctx, env, change, func(live string) (*reconfiguring.Change, error) {
		now := maps.Clone(after)
		now[manifests.KubeProxyConfigMap] = live
		return l.Between(now, before)
	})
	if err != nil {
		return err
	}
	if kept {
		change.Node = change.Node.With(func(n *config.Node) { n.KubeProxy = n.Upgrade.Before.KubeProxy })
	}
	back := *env
	back.Config = change.Node
	for _, p := range addon.Upgrade(wayBack(record)).Children[:2] {
		if p.Skip != nil && p.Skip(&back) != "" {
			continue
		}
		if err := p.Run(ctx, &back); err != nil {
			return err
		}
	}
	if !change.MovesEndpoint() {
		return nil
	}
	return addon.MoveFlannel(ctx, &back)
}

// proxySettingsOfOthers reports whether somebody else has changed kube-proxy's settings since a change that goes back, and says that they
// stay. back is the change from the live settings to those before.
func proxySettingsOfOthers(ctx context.Context, env *step.Env, change *reconfiguring.Change, back func(live string) (*reconfiguring.Change, error)) (bool, error) {
	const name = manifests.KubeProxyConfigMap
	live := node.ConfigMap(name)
	found, err := env.Cluster.Get(ctx, live)
	if err != nil || !found || !change.Changes(config.KubeProxySource) {
		return false, err
	}
	now, unreadable := back(live.Data["config.conf"]) // this run has written them, so somebody else has made them unreadable
	if unreadable == nil && (!now.Changes(config.KubeProxySource) || reflect.DeepEqual(now.Fields, change.Fields)) {
		return false, nil
	}
	env.UI.Warn("keeping ConfigMap kube-system/"+name+", which somebody else has changed meanwhile",
		"compare it with the change: `kubectl -n kube-system get configmap "+name+" -o yaml`")
	return true, nil
}

func textsOf(record *trial.Record) (before, after reconfiguring.Texts) {
	before, after = reconfiguring.Texts{}, reconfiguring.Texts{}
	for _, cm := range record.ConfigMaps {
		before[cm.Name], after[cm.Name] = cm.Before, cm.After
	}
	return before, after
}

// finishStoring stores a change proven by an earlier run. Somebody else's configuration stays: either the change hasn't begun
// to be stored, and goes back, or it counts without that ConfigMap.
func finishStoring(ctx context.Context, env *step.Env, record *trial.Record, byWatch bool) error {
	if record.State == trial.OnTrial {
		changed, err := changedSince(ctx, env, record)
		if err != nil {
			return err
		}
		if changed != "" {
			record.Cause = "ConfigMap " + changed + " was changed while the change was on trial"
			return rollBackUnfinished(ctx, env, record, byWatch)
		}
		if err := setStoring(ctx, env, record); err != nil {
			return err
		}
	}
	err := storeTexts(ctx, env, record, func(cm trial.ConfigMap) error {
		record.Cause = "ConfigMap " + cm.String() + " was changed meanwhile, and stays"
		env.UI.Warn("keeping ConfigMap "+cm.String()+", which somebody else has changed meanwhile",
			"this node runs with "+nameOf(record)+"; to store it, run `slipway reconfigure` with its documents again")
		return nil
	})
	if err != nil {
		return err
	}
	if err := record.MarkCompleted(env); err != nil {
		return err
	}
	if err := releaseInterruptedLease(ctx, env); err != nil {
		return err
	}
	return trial.RemoveUnits(ctx, env, byWatch)
}

// changedSince names a ConfigMap changed by somebody since the change was made from it; empty for none.
func changedSince(ctx context.Context, env *step.Env, record *trial.Record) (string, error) {
	for _, cm := range record.ConfigMaps {
		live := cm.Object()
		if _, err := env.Cluster.Get(ctx, live); err != nil {
			return "", err
		}
		if live.Data[cm.Key] != cm.Before && live.Data[cm.Key] != cm.After {
			return cm.String(), nil
		}
	}
	return "", nil
}
