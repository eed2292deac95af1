// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestGuard: a wait ends with the cause as soon as it's known, or with its own error when its time is up. It doesn't affect a
// wait that succeeds, or fails by itself.
func TestGuard(t *testing.T) {
	forever := func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("out of paper")
	}
	for name, tt := range map[string]struct {
		wait  func(context.Context) error
		fails bool // an API server that can't start
		want  string
	}{
		"succeeds":           {wait: func(context.Context) error { return nil }},
		"fails by itself":    {wait: func(context.Context) error { return errors.New("no such file") }, want: "no such file"},
		"the cause is known": {wait: forever, fails: true, want: "it did not start"},
		"the time is up":     {wait: forever, want: "out of paper"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := healthy(t)
				if tt.fails {
					h.crashed("kube-apiserver", "Error: unknown flag: --nonsense")
				}
				err := Guard(t.Context(), h, Wait{Limit: time.Minute, Failure: "it did not start"}, h.target(false), tt.wait)
				got := ""
				if err != nil {
					got = err.Error()
				}
				if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
					t.Errorf("error %q, want %q", got, tt.want)
				}
				var known *Error
				if errors.As(err, &known) != tt.fails || tt.fails && (len(known.Findings) != 1 || known.Findings[0].Name != "bad-flag") {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// TestAskedToWait: a server that asks for more time than a wait has left doesn't end it early, and its end is explained.
func TestAskedToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, began := healthy(t), time.Now()
		h.Fail["Unit"] = host.ErrNoSystemd
		busy := retry.Policy{First: time.Second, After: func(error) time.Duration { return time.Hour }}
		err := Guard(t.Context(), h, Wait{Limit: time.Minute, Failure: "it did not start"}, h.target(false), func(ctx context.Context) error {
			return busy.Do(ctx, func(context.Context) error { return errors.New("429") })
		})
		var known *Error
		if !errors.As(err, &known) || len(known.Findings) != 1 || known.Findings[0].Name != "kubelet-unit" || time.Since(began) < time.Minute {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		fact.Error(t, err, "429", "1h0m0s")
	})
}

// TestSlowOrStuck: a wait says every 15 seconds what it sees. If something made progress until its time was up, its error says which
// timeout to raise; if nothing moved, or the cause is known, it doesn't.
func TestSlowOrStuck(t *testing.T) {
	answer := func(checks string) error {
		return errors.Wrap(&host.ProbeError{URL: "https://127.0.0.1:6443/livez", Status: 500, Body: "[+]ping ok\n" + checks}, "kube-apiserver")
	}
	for name, tt := range map[string]struct {
		moves func(h *fakeHost, second int) error // the state of the host, and the error of a try
		slow  string                              // in the error, if it was slow
		said  string
		lists time.Duration // how long the host takes to list its containers
	}{
		"stuck": {func(*fakeHost, int) error { return answer("[-]etcd failed\n") }, "", "https://127.0.0.1:6443/livez; 500; [-]etcd failed; nothing moves", 0},
		"a log grows": {func(h *fakeHost, second int) error {
			h.put(h.Has.Containers[0].LogPath, strings.Repeat("x", second)+"\n")
			return answer("")
		}, "kube-scheduler logs", "kube-scheduler logs", 0},
		"a log grows on a busy host": {func(h *fakeHost, second int) error {
			h.put(h.Has.Containers[0].LogPath, strings.Repeat("x", second)+"\n")
			return answer("")
		}, "kube-scheduler logs", "44s", sayInterval},
		"a log repeats itself": {func(h *fakeHost, second int) error {
			h.put(h.Has.Containers[0].LogPath, strings.Repeat("2026-11-21T09:00:00.1Z stderr F failed after 7 s\n", second+1))
			return answer("")
		}, "", "45s; 43s", 0},
		"a container starts again and again": {func(h *fakeHost, second int) error {
			h.Has.Containers[0].ID = fmt.Sprint(second / 20)
			return answer("")
		}, "kube-scheduler started", "kube-scheduler started", 0},
		"checks turn green": {func(_ *fakeHost, second int) error {
			return answer("[-]etcd failed\n" + "[-]check" + strings.Repeat("x", second/20) + " failed\n")
		}, "answers change", "[-]etcd failed; answers change", 0},
		"the same errors come and go": {func(_ *fakeHost, second int) error {
			return []error{answer(""), errors.New("connection refused")}[second/2%2]
		}, "", "45s; 3m0s", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, began := healthy(t), time.Now()
				var said []string
				w := Wait{Limit: 3 * time.Minute, Field: "kubeletHealthCheck", Failure: "it did not start", Say: func(format string, args ...any) {
					said = append(said, fmt.Sprintf(format, args...))
				}}
				var mu sync.Mutex
				var used time.Duration
				h.On.CPUTime = func() time.Duration { used += tt.lists; return used } // twice a look, so there is only one
				h.On.ContainerStates = func(context.Context, string, string) ([]host.ContainerState, error) {
					time.Sleep(tt.lists)
					mu.Lock()
					defer mu.Unlock()
					return slices.Clone(h.Has.Containers), nil
				}
				err := Guard(t.Context(), h, w, h.target(false), func(ctx context.Context) error {
					time.Sleep(time.Second / 2) // the host never changes at the instant at which the guard looks
					return retry.Every(time.Second).Do(ctx, func(context.Context) error {
						mu.Lock()
						defer mu.Unlock()
						return tt.moves(h, int(time.Since(began).Seconds()))
					})
				})
				if tt.slow != "" {
					fact.In(t, fixture.Told(err), tt.slow, "3m0s", "timeouts.kubeletHealthCheck", "6m0s")
				} else if strings.Contains(fault.Remedy(err), "timeouts") {
					t.Errorf("error %v, remedy %s", err, fault.Remedy(err))
				}
				if len(said) < 11 || len(said) > 12 {
					t.Fatalf("it said %q", said)
				}
				fact.In(t, said[2+tt.lists/sayInterval], strings.Split(tt.said, "; ")...)
			})
		})
	}
}
