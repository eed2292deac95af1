// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// With changes that only an etcd can add to the database, and without.
var scenarios = []phasetest.Scenario{
	{Name: "etcd-recover", Prepare: survivorPlane.Begin, Run: runRecovery(false), Reads: "/var/lib/kubelet/config.yaml"},
	{Name: "etcd-recover-applied", Prepare: prepareApplied, Run: runRecovery(true), Reads: "/var/lib/kubelet/config.yaml"},
}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }

func TestHungUnits(t *testing.T) { phasetest.HangEach(t, scenarios) }

// survivorPlane is a control plane with the data of a survivor.
var survivorPlane = phasetest.Past{Init: bootstrap.Init, Then: func(h *phasetest.LastingHost) error {
	return errors.Join(leaveData(h.Root), h.Note(phasetest.HasEtcdData), h.StartPods())
}}

func prepareApplied(t *testing.T, s *phasetest.Scene) error {
	return errors.Join(survivorPlane.Begin(t, s), hasApplied(s.Root+member, committed))
}

// runRecovery runs the command until it has succeeded once.
func runRecovery(drop bool) phasetest.Runner {
	return func(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
		h.Has.Time = time.Date(2026, 2, 4, 0, 0, 0, 0, time.UTC)
		if err := boots(h); err != nil {
			return fmt.Errorf("had the node been booted now: %w", err)
		}
		replays(h)
		opts := config.Options{Facts: config.HostFacts{Hostname: "cp-1"}, Placeholders: true, AnyVersion: true}
		n, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, thisnode.Current(h), opts)
		if err != nil {
			return err
		}
		if exists(h, aside) && !exists(h, node.EtcdJournalPath(n.Paths)) {
			return isRecovered(h, drop)
		}
		env := &step.Env{Config: n, Host: h, Cluster: deadAPI{}, UI: ui.NewLines(say, io.Discard)}
		if err := asks(ctx, env, Options{Drop: drop}, exists(h, aside)); err != nil {
			return err
		}
		env.Etcd = newLostQuorum(3)
		r, err := New(ctx, env, Options{Drop: drop})
		if err != nil {
			return err
		}
		h.Plans = func(e *step.Env) {
			q := newLostQuorum(3)
			q.root = h.Root
			e.Etcd, e.Cluster = q, deadAPI{e.Cluster}
		}
		return phasetest.CrashRun(ctx, n, h, endpoint, say, r.Phases(), nil)
	}
}

const aside = member + ".before-recover-2026-02-04-00-00-00"

// asks fails unless other members that are back keep a run from going on, wherever the last one was killed, until data was moved.
func asks(ctx context.Context, env *step.Env, o Options, moved bool) error {
	q := newLostQuorum(3)
	q.answer["cp-2"], q.answer["cp-3"] = last, last
	env.Etcd = q
	switch _, err := New(ctx, env, o); {
	case err == nil && !moved:
		return errors.New("it goes on although the others are back, and no data was moved")
	case err != nil && moved:
		return fmt.Errorf("it does not go on after data was moved: %w", err)
	}
	return nil
}

func exists(h *phasetest.LastingHost, path string) bool {
	_, err := h.Lstat(path)
	return err == nil
}

// boots fails if a kubelet would start an etcd now whose data isn't whole.
func boots(h *phasetest.LastingHost) error {
	for pod, dir := range map[string]string{"etcd": member, replayName: "/var/lib/etcd/member.replay/member"} {
		if !exists(h, "/etc/kubernetes/manifests/"+pod+".yaml") {
			continue
		}
		if _, _, err := appliedIn(h.Root + dir); err != nil || !exists(h, dir+"/wal") {
			return fmt.Errorf("%s would start on %s: %w", pod, dir, err)
		}
	}
	return nil
}

// replays plays the etcd that adds to its database what's in its log.
func replays(h *phasetest.LastingHost) {
	await := h.On.AwaitContainer
	h.On.AwaitContainer = func(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error {
		err := await(ctx, socket, namespace, name, accept)
		if err == nil && name == replayName {
			err = hasApplied(h.Root+"/var/lib/etcd/member.replay/member", last)
		}
		return err
	}
}

// isRecovered fails unless etcd has the data of a new cluster, and the former data is still there.
func isRecovered(h *phasetest.LastingHost, drop bool) error {
	index, members, err := appliedIn(h.Root + member)
	if err != nil || index != 1 || len(members) != 1 || members[0].ID == ownID {
		return fmt.Errorf("entry %d, %+v, %w", index, members, err)
	}
	want := uint64(applied)
	if drop {
		want = committed
	}
	if index, _, err = appliedIn(h.Root + aside); err != nil || index != want {
		return fmt.Errorf("the former data ends at entry %d: %w", index, err)
	}
	return nil
}
