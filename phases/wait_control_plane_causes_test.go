// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// ended is a line of systemd about a kubelet that exited, with the kubelet's last message.
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
			names = append(names, f.Cause)
		}
	}
	return names
}

func TestWaitEndsOnceTheCauseIsKnown(t *testing.T) {
	const fatal = `E1121 09:00:00.000000 12 run.go:72] "command failed" err="failed to run Kubelet: no such thing"`
	restarting := host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code"}
	for name, test := range map[string]struct {
		wait    func(context.Context, *Env) error
		unit    host.UnitState
		journal []host.JournalEntry
		want    string
	}{
		"crash loop": {awaitKubeletConf, restarting, append(ended(fatal), ended(fatal)...), "kubelet-crash"},
		"failed":     {waitKubelet, host.UnitState{LoadState: "loaded", ActiveState: "failed", Result: "oom-kill"}, nil, "kubelet-crash"},
		"gone":       {waitKubelet, host.UnitState{LoadState: "not-found", ActiveState: "inactive"}, nil, "kubelet-unit"},
		"masked":     {awaitKubeletConf, host.UnitState{LoadState: "masked", ActiveState: "inactive"}, nil, "kubelet-unit"},
		"bad flag":   {waitKubelet, restarting, ended(`Error: failed to parse kubelet flag: unknown flag: --x`), "bad-flag"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, answers := waitStage(t, fixture.InitDocument+fixture.ClusterDocument)
			answers.broken[kubeletURL] = errors.New("connection refused")
			s.host.Has.Units[kubeletUnit] = test.unit
			s.host.On.RestartUnit = func(context.Context, string) error { return nil } // it ends again
			s.host.Has.Journal = test.journal
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
	s, answers := waitStage(t, fixture.InitDocument+strings.ReplaceAll(shortWaits, "150ms", "2500ms")+fixture.ClusterDocument)
	answers.broken[kubeletURL] = errors.New("out of paper")
	s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart"}
	const waiting = `E1121 09:00:00.000000 12 run.go:72] "command failed" err="dial tcp 192.0.2.11:6443: connect: connection refused"`
	s.host.Has.Journal = append(ended(waiting), ended(waiting)...)
	err := waitKubelet(t.Context(), s.Env)
	if !errors.Is(err, errOf(answers, kubeletURL)) {
		t.Errorf("error %v", err)
	}
	fact.Error(t, err, "gave up")
	if got := causes(err); len(got) != 1 || got[0] != "kubelet-crash" {
		t.Errorf("what a look found when the time was up: %v", got)
	}
}

func TestUnitThatCannotStartIsExplained(t *testing.T) {
	s, _ := waitStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.host.Has.Units[kubeletUnit] = host.UnitState{LoadState: "masked", ActiveState: "inactive"}
	s.host.Fail["start kubelet.service"] = errors.New("refused")
	s.put(t, "/var/lib/kubelet/config.yaml", "")
	_, err := ensureKubelet(t.Context(), s.Env, nil)
	if got := causes(err); len(got) != 1 || got[0] != "kubelet-unit" || !strings.HasPrefix(message(err), "refused\n  [kubelet-unit] kubelet.service: ") {
		t.Errorf("%v, error %v", got, err)
	}
	fact.Error(t, err, "masked")
}
