// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package retry calls a function until it succeeds. Policy says how long to wait and when to stop; Policy.Do runs it, and Every
// is the simplest policy. Unlike the loops in k8s.io/apimachinery, it keeps the last error when the context ends.
package retry

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Policy says how long to wait between two tries, and when to stop.
type Policy struct {
	// First is the wait after the first try. Each wait is twice as long as the wait before, up to Slowest. If Slowest is zero,
	// every wait is as long as First.
	First, Slowest time.Duration
	// Jitter shortens each wait by up to half, at random, so that callers that failed together don't come back together.
	Jitter bool
	// Tries is the highest number of tries; zero means no limit.
	Tries int
	// Retryable reports whether another try can succeed after an error. If it's nil, every error can pass.
	Retryable func(error) bool
	// After returns the least time to wait after an error, such as a server's Retry-After. It may be nil.
	After func(error) time.Duration
}

// Every tries at an interval, no matter the error.
func Every(interval time.Duration) Policy { return Policy{First: interval} }

type reportKey struct{}

// Reporting returns a context in which Do reports each error after which it tries again.
func Reporting(ctx context.Context, report func(error)) context.Context {
	return context.WithValue(ctx, reportKey{}, report)
}

// Error is the error of Do if its context ended the tries.
type Error struct {
	// Last is the error of the last try, not counting errors caused by the context.
	Last    error
	Cause   error
	Elapsed time.Duration
	Tries   int
}

func (e *Error) Error() string {
	return fmt.Sprintf("%v; gave up after %s (tries: %d): %v", e.Last, e.Elapsed.Round(time.Millisecond), e.Tries, e.Cause)
}

func (e *Error) Unwrap() []error { return []error{e.Last, e.Cause} }

// Do calls try until it succeeds, and at least once, even if ctx has ended. A permanent error, and the error of the last of
// Tries, is returned unchanged. If ctx ends, the error is an *Error.
func (p Policy) Do(ctx context.Context, try func(context.Context) error) error {
	start, backoff := time.Now(), p.backoff()
	report, _ := ctx.Value(reportKey{}).(func(error))
	var last error
	for tries := 1; ; tries++ {
		began := time.Now()
		err := try(ctx)
		took, live := time.Since(began), ctx.Err() == nil
		switch {
		case err == nil:
			return nil
		case live && (tries == p.Tries || p.Retryable != nil && !p.Retryable(err)):
			return err
		case live && !late(ctx) || last == nil:
			last = err
			if report != nil {
				report(err)
			}
		}
		if stop := sleep(ctx, max(backoff.Step(), pause(took, time.Since(start))), p.after(err)); stop != nil {
			return &Error{Last: last, Cause: stop, Elapsed: time.Since(start), Tries: tries}
		}
	}
}

// pause is the least time between two tries, given how long the last try took, and all of them together. On a busy machine, others
// need the processor to make progress, so it's several times the last try, but adds at most a tenth to the time waited so far. The
// longer a wait has lasted, the less a moment more matters, so it's at least a two-hundredth of that time.
func pause(took, waited time.Duration) time.Duration {
	const times, most, least = 20, 10, 200
	return min(max(min(times*took, waited/most), waited/least), time.Second)
}

// late reports whether ctx's deadline has passed. A server, or a library that checks the clock itself, may notice before ctx
// does.
func late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func (p Policy) backoff() wait.Backoff {
	b := wait.Backoff{Duration: p.First}
	if p.Slowest > 0 {
		b.Factor, b.Cap, b.Steps = 2, p.Slowest, math.MaxInt
	}
	if p.Jitter { // wait adds up to Jitter times the duration
		b.Duration, b.Cap, b.Jitter = b.Duration/2, b.Cap/2, 1
	}
	return b
}

func (p Policy) after(err error) time.Duration {
	if p.After == nil {
		return 0
	}
	return p.After(err)
}

// sleep returns early, with the reason, if ctx ends. If the server asks for more time than is left, it lasts until then: a
// guard of the wait may yet find the cause.
func sleep(ctx context.Context, delay, asked time.Duration) error {
	timer := time.NewTimer(max(delay, asked))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		if asked > delay {
			return errors.WithMessagef(context.Cause(ctx), "the server asks to wait %s", asked)
		}
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
