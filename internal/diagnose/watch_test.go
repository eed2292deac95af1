// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

func TestJudge(t *testing.T) {
	seen := map[string]time.Time{}
	look := func(second int, found ...symptom) int {
		return len(judge(seen, found, at.Add(time.Duration(second)*time.Second)))
	}
	once, slow, open := symptom{}, symptom{minDuration: 3 * time.Second}, symptom{minDuration: never}
	once.Name, slow.Name, open.Name = "a", "b", "c"
	for i, step := range []struct {
		second int
		found  []symptom
		want   int
	}{
		{0, []symptom{slow, open}, 0},
		{1, []symptom{slow, open}, 0},
		{2, []symptom{open}, 0}, // it passed
		{3, []symptom{slow, open}, 0},
		{5, []symptom{slow, open}, 0},
		{6, []symptom{slow, open}, 1},
		{99, []symptom{open}, 0},
		{100, []symptom{once, open}, 1},
	} {
		if got := look(step.second, step.found...); got != step.want {
			t.Errorf("look %d: %d last, want %d", i, got, step.want)
		}
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 1200*time.Millisecond)
	defer cancel()
	h := healthy(t)
	if found := watch(ctx, h, h.target(false), at, newProgress(h, Wait{})); found != nil {
		t.Errorf("found %v", found)
	}
}

// A kubelet's complaint from before a wait may be fixed by now: it counts once the kubelet repeats it.
func TestInsistedBeforeTheWait(t *testing.T) {
	h := healthy(t)
	h.insisted(`E1121 "x" err="cannot create certificate signing request: failed calling webhook \"guard.example.org\": refused"`)
	for _, began := range []time.Time{at.Add(-time.Minute), at.Add(time.Second)} {
		target := h.target(true)
		target.began = began
		found, _ := look(t.Context(), h, target, &journal{}, nil)
		if got := len(found) > 0; got != began.Before(at) {
			t.Errorf("a wait that began at %s: found %v", began, found)
		}
	}
}

// A look that ran out of time finds nothing: on a busy machine, all answers may be late.
func TestLateLookCountsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		h := healthy(t)
		h.On.RuntimeInfo = func(ctx context.Context, _ string) (host.RuntimeInfo, error) {
			<-ctx.Done() // it answers only when nobody waits for it any more
			return host.RuntimeInfo{}, ctx.Err()
		}
		h.crashed("kube-apiserver", "Error: unknown flag: --nonsense")
		if found := watch(ctx, h, h.target(false), at, newProgress(h, Wait{})); found != nil {
			t.Errorf("found %v", found)
		}
	})
}

// TestSlowRuntime: a runtime that takes its time ends no wait. If it hangs, it ends a wait, a long one only after many minutes.
func TestSlowRuntime(t *testing.T) {
	for name, tt := range map[string]struct{ answers, limit, least, most time.Duration }{
		"slow":             {20 * time.Second, 4 * time.Minute, 0, 5 * time.Minute},
		"hangs":            {time.Hour, 4 * time.Minute, time.Minute, 3 * time.Minute},
		"hangs, slow host": {time.Hour, 45 * time.Minute, 11 * time.Minute, 13 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
				defer cancel()
				h, began := healthy(t), time.Now()
				h.On.Now = func() time.Time { return at.Add(time.Since(began)) }
				h.On.ContainerStates = func(ctx context.Context, _, _ string) ([]host.ContainerState, error) {
					select {
					case <-ctx.Done():
						return nil, ctx.Err()
					case <-time.After(tt.answers):
						return h.Has.Containers, nil
					}
				}
				found := watch(ctx, h, h.target(false), at, newProgress(h, Wait{Limit: tt.limit}))
				if (len(found) > 0) != (tt.least > 0) || time.Since(began) < tt.least || time.Since(began) > tt.most {
					t.Errorf("after %s of %s: found %v", time.Since(began), tt.limit, found)
				}
			})
		})
	}
}

// TestLinesComeInTime: a wait says what it sees every 15 seconds, even while a look hangs.
func TestLinesComeInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
		defer cancel()
		h, began := healthy(t), time.Now()
		h.On.ContainerStates = func(ctx context.Context, _, _ string) ([]host.ContainerState, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		var said []time.Duration
		say := func(string, ...any) { said = append(said, time.Since(began)) }
		watch(ctx, h, h.target(false), at, newProgress(h, Wait{Limit: time.Minute, Say: say}))
		if diff := cmp.Diff([]time.Duration{15 * time.Second, 30 * time.Second, 45 * time.Second}, said); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestLooksFollowTheirCost: a quick look comes every second, a slow one rarely. It goes through the causes only if something has
// changed, or once in a while.
func TestLooksFollowTheirCost(t *testing.T) {
	for name, tt := range map[string]struct {
		takes, changes  time.Duration // a look, and the time between two changes
		looks, searches [2]int
	}{
		"quick, nothing changes": {0, time.Hour, [2]int{58, 60}, [2]int{4, 5}},
		"quick, always changes":  {0, time.Second, [2]int{58, 60}, [2]int{58, 60}},
		"slow":                   {500 * time.Millisecond, time.Second, [2]int{5, 7}, [2]int{5, 7}},
		"very slow":              {5 * time.Second, time.Second, [2]int{2, 3}, [2]int{2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				h, began, looks, searches := healthy(t), time.Now(), 0, 0
				h.On.ContainerStates = func(context.Context, string, string) ([]host.ContainerState, error) {
					looks++
					time.Sleep(tt.takes)
					return []host.ContainerState{{ID: time.Since(began).Truncate(tt.changes).String(), State: "running"}}, nil
				}
				h.On.RuntimeInfo = func(context.Context, string) (host.RuntimeInfo, error) {
					searches++
					return host.RuntimeInfo{Ready: true}, nil
				}
				watch(ctx, h, h.target(false), at, newProgress(h, Wait{}))
				if looks < tt.looks[0] || looks > tt.looks[1] || searches < tt.searches[0] || searches > tt.searches[1] {
					t.Errorf("%d looks, %d searches for causes; want %v and %v", looks, searches, tt.looks, tt.searches)
				}
			})
		})
	}
}

// TestOneFailedCheckIsNoCause: a busy server may fail a check once. During a wait, which asks all the time, a look doesn't stop for it.
func TestOneFailedCheckIsNoCause(t *testing.T) {
	for times, want := range map[int]int{1: 0, 2: 0, 3: 1} {
		synctest.Test(t, func(t *testing.T) {
			h, asked := healthy(t), 0
			h.On.Fetch = func(_ context.Context, p host.Probe) ([]byte, error) {
				if strings.HasSuffix(p.URL, "/livez?verbose") {
					if asked++; asked <= times {
						return nil, &host.ProbeError{Status: 500, Body: "[-]etcd failed\n"}
					}
				}
				return nil, nil
			}
			if found := run(t, h, false); len(found) != want {
				t.Errorf("after %d failures: %v", times, found)
			}
			began := time.Now()
			asked = 0
			if found := run(t, h, true); len(found) != 1 || time.Since(began) != 0 {
				t.Errorf("in a wait: %v after %s", found, time.Since(began))
			}
		})
	}
}

func TestJournalIsReadOnce(t *testing.T) {
	h := healthy(t)
	h.Has.Time = at.Add(time.Second)
	var j journal
	entry := func(after time.Duration, program, text string) host.JournalEntry {
		return host.JournalEntry{Time: at.Add(after), Program: program, Message: text}
	}
	h.Has.Journal = []host.JournalEntry{entry(1, "kubelet", "E1121 09:00:00.1 12 a.go:1] waiting 1"), entry(2, "systemd", "exited")}
	j.read(t.Context(), h, at)
	h.Has.Journal = []host.JournalEntry{entry(1, "kubelet", "read before"), entry(5000, "kubelet", "E1121 09:00:09.9 13 a.go:1] waiting 2"), entry(6000, "systemd", "exited")}
	j.read(t.Context(), h, at)
	var got []host.JournalEntry
	for _, e := range j.entries {
		got = append(got, e.JournalEntry)
	}
	want := []host.JournalEntry{entry(2, "systemd", "exited"), h.Has.Journal[1], h.Has.Journal[2]}
	if diff := cmp.Diff(want, got); diff != "" || !j.entries[1].first.Equal(at.Add(1)) {
		t.Errorf("first said at %s, entries (-want +got):\n%s", j.entries[1].first, diff)
	}
}

// TestJournalAfterAStepBack: if the clock is set back, new entries are older than the newest, and than the next look. They count once.
func TestJournalAfterAStepBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := healthy(t)
		var j journal
		log := func(when time.Time, text string) {
			h.Has.Journal = append(h.Has.Journal, host.JournalEntry{Time: when, Program: "systemd", Message: text})
		}
		since := h.Has.Time
		log(since, "before")
		j.read(t.Context(), h, since)
		for _, text := range []string{"after", "later"} {
			time.Sleep(10 * time.Second)
			h.Has.Time = h.Has.Time.Add(-time.Hour)
			log(h.Has.Time.Add(-8*time.Second), text)
			j.read(t.Context(), h, since)
			j.read(t.Context(), h, since)
			if j.newest.After(h.Has.Time) {
				t.Errorf("the newest entry is of %s, and it's %s", j.newest, h.Has.Time)
			}
		}
		var got []string
		for _, e := range j.entries {
			got = append(got, e.Message)
		}
		if diff := cmp.Diff([]string{"before", "after", "later"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestJournalBeginsAfterAStepBack: the kubelet has started by the earlier time, so the first look reads from before that.
func TestJournalBeginsAfterAStepBack(t *testing.T) {
	h := healthy(t)
	var j journal
	h.Has.Journal = []host.JournalEntry{{Time: at.Add(-time.Second), Program: "systemd", Message: "exited"}}
	j.read(t.Context(), h, at.Add(time.Hour))
	if len(j.entries) != 1 {
		t.Errorf("entries %v", j.entries)
	}
}

// Log lines of an earlier kubelet process don't count.
func TestBeginning(t *testing.T) {
	for since, want := range map[time.Duration]time.Duration{-time.Hour: -10 * time.Second, -2 * time.Second: -2 * time.Second, time.Second: time.Second} {
		h := healthy(t)
		h.Has.Units[kubeletService] = host.UnitState{ActiveSince: at.Add(since)}
		if got := beginning(t.Context(), h, at); !got.Equal(at.Add(want)) {
			t.Errorf("of a kubelet started %s from now: %s", since, got)
		}
	}
}

func TestInformative(t *testing.T) {
	for line, want := range map[string]bool{
		`I1121 09:00:00.000000    1234 server.go:210] "Starting"`:   true,
		`{"level":"info","ts":"2026-11-21T09:00:00Z","msg":"up"}`:   true,
		`E1121 09:00:00.000000    1234 run.go:72] "command failed"`: false,
		`W1121 09:00:00.000000    1234 logging.go:55] no address`:   false,
		`{"level":"warn","msg":"slow"}`:                             false,
		`Error: unknown flag: --nonsense`:                           false,
		`Invalid configuration`:                                     false,
		"":                                                          false,
	} {
		if got := informative(line); got != want {
			t.Errorf("%q: %v", line, got)
		}
	}
}

// TestRemedyOfAnError: an error with causes keeps its own remedy.
func TestRemedyOfAnError(t *testing.T) {
	found := []fault.Finding{{Name: "swap"}}
	if got := fault.Remedy(errors.Wrap(&Error{Err: errors.New("no answer"), Findings: found}, "phase x")); !strings.Contains(got, "same command") {
		t.Errorf("got %q", got)
	}
	if got := fault.Remedy(&Error{Err: fault.New("no answer", "wait"), Findings: found}); got != "wait" {
		t.Errorf("got %q", got)
	}
}
