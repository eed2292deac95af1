// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/fact"
)

var errBusy = errors.New("busy")

// failing fails the first times with err, and records the time of each call.
func failing(times int, err error, calls *[]time.Duration) func(context.Context) error {
	began := time.Now()
	return func(context.Context) error {
		*calls = append(*calls, time.Since(began))
		if len(*calls) <= times {
			return err
		}
		return nil
	}
}

func TestIntervals(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		policy Policy
		want   []time.Duration
	}{
		"fixed":        {Every(50 * ms), []time.Duration{0, 50 * ms, 100 * ms, 150 * ms, 200 * ms}},
		"growing":      {Policy{First: 20 * ms, Slowest: 50 * ms}, []time.Duration{0, 20 * ms, 60 * ms, 110 * ms, 160 * ms}},
		"asked":        {Policy{First: 20 * ms, After: func(error) time.Duration { return time.Second }}, []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second}},
		"asked less":   {Policy{First: 20 * ms, After: func(error) time.Duration { return ms }}, []time.Duration{0, 20 * ms, 40 * ms, 60 * ms, 80 * ms}},
		"all can pass": {Policy{First: 20 * ms, Retryable: func(error) bool { return true }}, []time.Duration{0, 20 * ms, 40 * ms, 60 * ms, 80 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []time.Duration
				if err := test.policy.Do(t.Context(), failing(4, errBusy, &calls)); err != nil {
					t.Fatal(err)
				}
				for i, at := range calls {
					if at != test.want[i] {
						t.Errorf("tried after %v, want %v", calls, test.want)
						break
					}
				}
			})
		})
	}
}

// TestPausesSpareTheProcessor: tries that take long are rarer, and so are all tries of a long wait. The first seconds, which matter
// on a fast machine, stay as they are.
func TestPausesSpareTheProcessor(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name   string
		takes  time.Duration
		within time.Duration
		most   int
		least  int
	}{
		{"quick tries of a short wait", 0, 10 * time.Second, 201, 201},
		{"quick tries of a long wait", 0, 4 * time.Minute, 900, 600},
		{"slow tries", 20 * ms, 10 * time.Second, 60, 24},
		{"tries that hang", 5 * time.Second, time.Minute, 12, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tt.within)
				defer cancel()
				tries := 0
				_ = Every(50*ms).Do(ctx, func(context.Context) error {
					tries++
					time.Sleep(tt.takes)
					return errBusy
				})
				if tries > tt.most || tries < tt.least {
					t.Errorf("%d tries in %s, want %d to %d", tries, tt.within, tt.least, tt.most)
				}
			})
		})
	}
}

// TestReporting reports each error after which there's another try.
func TestReporting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []error
		var calls []time.Duration
		ctx := Reporting(t.Context(), func(err error) { said = append(said, err) })
		if err := Every(time.Second).Do(ctx, failing(2, errBusy, &calls)); err != nil || len(said) != 2 || !errors.Is(said[1], errBusy) {
			t.Errorf("%v, reported %v", err, said)
		}
	})
}

func TestJitter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := Policy{First: 100 * time.Millisecond, Slowest: 200 * time.Millisecond, Jitter: true}
		different := map[time.Duration]bool{}
		for range 50 {
			var calls []time.Duration
			if err := p.Do(t.Context(), failing(3, errBusy, &calls)); err != nil {
				t.Fatal(err)
			}
			for i, longest := range []time.Duration{p.First, p.Slowest, p.Slowest} {
				if waited := calls[i+1] - calls[i]; waited < longest/2 || waited > longest {
					t.Errorf("wait %d was %s, want %s to %s", i, waited, longest/2, longest)
				}
			}
			different[calls[1]] = true
		}
		if len(different) < 2 {
			t.Error("all first waits were the same")
		}
	})
}

func TestFinalErrors(t *testing.T) {
	for name, test := range map[string]struct {
		policy Policy
		tries  int
	}{
		"cannot pass":    {Policy{First: time.Second, Retryable: func(error) bool { return false }}, 1},
		"the last try":   {Policy{First: time.Second, Tries: 3}, 3},
		"passes at last": {Policy{First: time.Second, Tries: 2, Retryable: func(error) bool { return true }}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls []time.Duration
				if err := test.policy.Do(t.Context(), failing(10, errBusy, &calls)); err != errBusy || len(calls) != test.tries { //nolint:errorlint // unwrapped on purpose
					t.Errorf("%v after %d tries, want it as it is after %d", err, len(calls), test.tries)
				}
			})
		})
	}
}

// TestGivesUp expects the last error of the try itself, not an error caused by the context's end.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("the phase has 1s")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		tries := 0
		err := Every(300*time.Millisecond).Do(ctx, func(ctx context.Context) error {
			if tries++; tries < 4 {
				return errBusy
			}
			<-ctx.Done()
			return ctx.Err()
		})
		var gaveUp *Error
		if !errors.As(err, &gaveUp) || !errors.Is(gaveUp.Last, errBusy) || !errors.Is(err, errBusy) || !errors.Is(err, cause) || tries != 4 {
			t.Fatalf("%v after %d tries", err, tries)
		}
		if gaveUp.Elapsed != time.Second || gaveUp.Tries != 4 {
			t.Errorf("%+v", gaveUp)
		}
		fact.Error(t, err, errBusy.Error(), "after 1s", "tries: 4", "phase has 1s")
	})
}

// TestEndedAlready tries once, and returns the error of its only try.
func TestEndedAlready(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var calls []time.Duration
	err := Every(time.Hour).Do(ctx, failing(10, errBusy, &calls))
	if len(calls) != 1 || !errors.Is(err, errBusy) || !errors.Is(err, context.Canceled) {
		t.Errorf("%v after %d tries", err, len(calls))
	}
	if err := Every(time.Hour).Do(ctx, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
}

// lateContext ends a moment after its deadline, as real contexts do.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// TestDeadlineJustPassed lets the context itself end the tries, so that its cause is set.
func TestDeadlineJustPassed(t *testing.T) {
	var calls []time.Duration
	if err := Every(time.Millisecond).Do(lateContext{t.Context()}, failing(2, errBusy, &calls)); err != nil || len(calls) != 3 {
		t.Errorf("%v after %d tries", err, len(calls))
	}
}

// TestDeadlineNoticedEarly: an error that comes after the deadline, but before the context ends, isn't the last error either.
func TestDeadlineNoticedEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		tries := 0
		err := Every(20*time.Millisecond).Do(lateContext{ctx}, func(context.Context) error {
			if tries++; tries == 1 {
				return errBusy
			}
			return context.DeadlineExceeded
		})
		var gaveUp *Error
		if !errors.As(err, &gaveUp) || !errors.Is(gaveUp.Last, errBusy) || !errors.Is(gaveUp.Cause, context.Canceled) || gaveUp.Tries != 3 || gaveUp.Elapsed != 50*time.Millisecond {
			t.Errorf("%+v", err)
		}
	})
}

// TestAskedForTooLong waits until its time is up if the server asks for more.
func TestAskedForTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		err := Policy{First: time.Second, After: func(error) time.Duration { return time.Hour }}.Do(ctx, func(context.Context) error { return errBusy })
		if time.Since(start) != time.Minute || !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1h0m0s") {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
}
