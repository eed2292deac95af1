// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"io/fs"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// bootScenario is reconfigureScenario on a machine that restarts after the kill.
var bootScenario = phasetest.Scenario{
	Name: "reconfigure-boot", Prepare: reconfigureScenario.Prepare, Reads: reconfigureScenario.Reads, Renews: reconfigureScenario.Renews,
	Run: func(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
		if err := boot(ctx, h, endpoint, say); err != nil {
			return err
		}
		return reconfigure(ctx, h, endpoint, say)
	},
}

// wayBackScenario is the unit that watches a change, whose run died while it waited for this answer.
func wayBackScenario(name string, answer trial.Answer) phasetest.Scenario {
	return phasetest.Scenario{
		Name: name, Run: watch, Reads: reconfigureScenario.Reads, Renews: reconfigureScenario.Renews, Least: 8,
		Prepare: func(t *testing.T, s *phasetest.Scene) error {
			if err := reconfigureScenario.Prepare(t, s); err != nil {
				return err
			}
			s.Run = dies(answer)
			said, err := s.Again(t.Context())
			s.Run, s.Writing = watch, 0
			if !errors.Is(err, errDead) {
				t.Errorf("%v\n%s", err, said)
			}
			return nil
		},
	}
}

var errDead = errors.New("the run has died")

// dies changes everything, and dies while it waits for its confirmation, with or without an answer: then the time is over.
func dies(answer trial.Answer) phasetest.Runner {
	return func(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
		ctx, die := context.WithCancel(ctx)
		defer die()
		workflow := func(r *Run) []step.Phase {
			phases := r.Phases()
			i := slices.IndexFunc(phases, func(p step.Phase) bool { return p.Name == "confirmation" })
			phases[i].Run = func(_ context.Context, env *step.Env) error {
				defer die()
				err := r.record.WaitUntil(env, env.Host.Now().Add(r.Try))
				if err == nil && answer != trial.Unconfirmed {
					err = r.record.Answer(env, answer)
				}
				return cmp.Or(err, errDead)
			}
			return phases
		}
		return command(ctx, h, endpoint, say, workflow, func(l reconfiguring.Loader) (*Run, error) {
			c, _, err := l.Load(ctx, &config.Source{Name: "change.yaml", Data: []byte(withDNS)})
			r := New(c, "")
			r.Try = time.Nanosecond
			return r, err
		})
	}
}

// watch is what slipway-watch.service runs.
func watch(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	return unit(ctx, h, endpoint, say, Watch())
}

// unit runs a workflow without the API's configuration.
func unit(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer, workflow []step.Phase) error {
	living, _, err := livingOn(h)
	if err != nil {
		return err
	}
	return phasetest.CrashRun(ctx, living, h, endpoint, say, workflow, nil)
}

// boot runs the units that a change leaves, if they're there, around the kubelet's start. Then the change is either made or not.
func boot(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	for _, name := range []string{"slipway-way-back.service", "slipway-watch.service"} {
		_, err := h.Lstat("/etc/systemd/system/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	err := unit(ctx, h, endpoint, say, RestoreFiles())
	if err == nil {
		err = h.OrderUnit(ctx, host.RestartUnit, node.KubeletUnit)
	}
	if err == nil {
		err = watch(ctx, h, endpoint, say)
	}
	if err == nil {
		err = unit(ctx, h, endpoint, say, []step.Phase{{Name: "whole", Run: isWhole}})
	}
	return err
}

// isWhole returns an error unless the last change is made completely, or not at all.
func isWhole(ctx context.Context, env *step.Env) error {
	last, err := trial.Last(env)
	if err != nil || last == nil { // the units are there before the record
		return err
	}
	lease := phasetest.TurnLease()
	if _, err := env.Cluster.Get(ctx, lease); err != nil {
		return err
	}
	if holder := lease.Spec.HolderIdentity; !last.Finished() || holder != nil && *holder != "" {
		return errors.Errorf("after the boot, the change is %q, and its turn has not ended: %v", last.State, lease.Spec)
	}
	for _, f := range last.Files {
		now, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return err
		}
		then, err := last.OriginalContent(env, f)
		if err != nil {
			return err
		}
		if before, after := bytes.Equal(now, then), host.HashOf(now) == f.After; last.State == trial.Completed && !after || last.State == trial.Reverted && !before {
			return errors.Errorf("the change is %q; %s is as before: %t, as after: %t", last.State, f.Path, before, after)
		}
	}
	if c := last.CoreDNS; c != nil {
		if fits, err := (addon.CoreDNSChange{Before: c.Before, After: c.Before}).Fits(ctx, env); err != nil || fits != (last.State == trial.Reverted) {
			return errors.Errorf("the change is %q; CoreDNS is as before: %t, %v", last.State, fits, err)
		}
	}
	wanted := func(cm trial.ConfigMap) string {
		if last.State == trial.Completed {
			return cm.After
		}
		return cm.Before
	}
	for _, cm := range last.ConfigMaps {
		text, err := cluster.ConfigMapText(ctx, env.Cluster, "kube-system", cm.Name, cm.Key)
		if err != nil {
			return err
		}
		if diff := gocmp.Diff(wanted(cm), text); diff != "" {
			return errors.Errorf("the change is %q; ConfigMap %s (-want +got):\n%s", last.State, cm.Name, diff)
		}
	}
	return nil
}
