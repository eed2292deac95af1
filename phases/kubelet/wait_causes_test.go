// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// ended is systemd's line about a kubelet that exited, after the kubelet's last message.
func ended(words string) []host.JournalEntry {
	return []host.JournalEntry{
		{Time: time.Now(), Program: "kubelet", Message: words},
		{Time: time.Now(), Program: "systemd", Message: "kubelet.service: Main process exited, code=exited, status=1/FAILURE"},
	}
}

func causes(err error) []string {
	var names []string
	var e *diagnose.Error
	if errors.As(err, &e) {
		for _, f := range e.Findings {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestWaitEndsOnceTheCauseIsKnown(t *testing.T) {
	const fatal = `E1121 09:00:00.000000 12 run.go:72] "command failed" err="failed to run Kubelet: no such thing"`
	restarting := host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code"}
	for name, test := range map[string]struct {
		wait    func(context.Context, *step.Env) error
		unit    host.UnitState
		journal []host.JournalEntry
		want    string
	}{
		"crash loop": {awaitKubeletConf, restarting, append(ended(fatal), ended(fatal)...), "kubelet-crash"},
		"failed":     {node.WaitKubelet, host.UnitState{LoadState: "loaded", ActiveState: "failed", Result: "oom-kill"}, nil, "kubelet-crash"},
		"gone":       {node.WaitKubelet, host.UnitState{LoadState: "not-found", ActiveState: "inactive"}, nil, "kubelet-unit"},
		"masked":     {awaitKubeletConf, host.UnitState{LoadState: "masked", ActiveState: "inactive"}, nil, "kubelet-unit"},
		"bad flag":   {node.WaitKubelet, restarting, ended(`Error: failed to parse kubelet flag: unknown flag: --x`), "bad-flag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, answers := phasetest.WaitStage(t, fixture.InitDocument+fixture.ClusterDocument)
			answers.Broken[phasetest.KubeletURL] = errors.New("connection refused")
			s.FakeHost.Has.Units[node.KubeletUnit] = test.unit
			s.FakeHost.On.Orders = map[host.UnitOrder]func(context.Context, string) error{
				host.RestartUnit: func(context.Context, string) error { return nil }, // it ends again
			}
			s.FakeHost.Has.Journal = test.journal
			started := time.Now()
			err := test.wait(t.Context(), s.Env) // its own limits are minutes
			if got := causes(err); len(got) != 1 || got[0] != test.want || time.Since(started) > 2*time.Minute {
				t.Errorf("causes %v after %s: %v", got, time.Since(started), err)
			}
			fact.Error(t, err, "stopped waiting", "["+test.want+"]")
		})
	}
}

// Neither a slow start nor the messages during it end the wait.
func TestWaitGoesOnWhileTheCauseMayPass(t *testing.T) {
	t.Parallel()
	s, answers := phasetest.WaitStage(t, fixture.InitDocument+strings.ReplaceAll(phasetest.ShortWaits, "150ms", "2500ms")+fixture.ClusterDocument)
	answers.Broken[phasetest.KubeletURL] = errors.New("out of paper")
	s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart"}
	const waiting = `E1121 09:00:00.000000 12 run.go:72] "command failed" err="dial tcp 192.0.2.11:6443: connect: connection refused"`
	s.FakeHost.Has.Journal = append(ended(waiting), ended(waiting)...)
	err := node.WaitKubelet(t.Context(), s.Env)
	if !errors.Is(err, phasetest.ErrOf(answers, phasetest.KubeletURL)) {
		t.Errorf("error %v", err)
	}
	fact.Error(t, err, "gave up")
	if got := causes(err); len(got) != 1 || got[0] != "kubelet-crash" {
		t.Errorf("what a look found when the time was up: %v", got)
	}
}

func TestUnitThatCannotStartIsExplained(t *testing.T) {
	s, _ := phasetest.WaitStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.FakeHost.Has.Units[node.KubeletUnit] = host.UnitState{LoadState: "masked", ActiveState: "inactive"}
	s.FakeHost.Fail["start kubelet.service"] = errors.New("refused")
	s.Put(t, "/var/lib/kubelet/config.yaml", "")
	_, err := ensureKubelet(t.Context(), s.Env, nil)
	if got := causes(err); len(got) != 1 || got[0] != "kubelet-unit" || !strings.HasPrefix(phasetest.Message(err), "refused\n  [kubelet-unit] kubelet.service: ") {
		t.Errorf("%v, error %v", got, err)
	}
	fact.Error(t, err, "masked")
}
