// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"cmp"
	"context"
	"path/filepath"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Answer is what an operator says about a change that waits for its confirmation. It's a file of its own, because the operator's
// command doesn't hold the node's lock. Only the holder writes the record.
type Answer string

// The answers. Unconfirmed is that of nobody, when the time is over.
const (
	Confirmed   Answer = "confirmed"
	Refused     Answer = "refused"
	Unconfirmed Answer = ""

	answerFile = "answer"
	// answerInterval is how often a waiting run looks for the answer.
	answerInterval = time.Second
)

// WaitUntil notes the wait for a confirmation.
func (r *Record) WaitUntil(env *step.Env, until time.Time) error {
	until = until.UTC().Truncate(time.Second)
	r.Until = &until
	return r.Set(env, OnTrial)
}

// Finished reports whether nothing is left to do for the change.
func (r *Record) Finished() bool { return r.State == Completed || r.State == Reverted }

// AwaitsConfirmation reports whether the change waits for its confirmation.
func (r *Record) AwaitsConfirmation() bool { return r.State == OnTrial && r.Until != nil }

// Answer gives the waiting run an answer.
func (r *Record) Answer(env *step.Env, a Answer) error {
	_, err := ownership.File{Path: filepath.Join(r.dir, answerFile), Data: []byte(a), Mode: 0o600}.Write(env.Host)
	return err
}

// Answered returns the answer so far.
func (r *Record) Answered(env *step.Env) (Answer, error) {
	data, err := host.ReadIfExists(env.Host, filepath.Join(r.dir, answerFile))
	return Answer(data), err
}

// pendingError says nobody has answered yet.
type pendingError struct{}

func (pendingError) Error() string { return "nobody has confirmed the change yet" }

// LongestWait is how long a change may wait for its confirmation: after an hour, other control planes go on without this one's Lease.
const LongestWait = time.Hour

// AwaitAnswer waits for an answer until the time is over. say is told how much is left, about every half minute. If the host's clock
// is set back meanwhile, it waits no longer than it would have.
func (r *Record) AwaitAnswer(ctx context.Context, env *step.Env, say func(left time.Duration)) (answer Answer, err error) {
	const often = 30 * time.Second
	next := r.Until.Sub(env.Host.Now())
	began, longest := time.Now(), min(next, LongestWait)
	waiting := retry.Policy{First: answerInterval, Retryable: func(err error) bool { return errors.As(err, new(pendingError)) }}
	err = waiting.Do(ctx, func(context.Context) (err error) {
		if answer, err = r.Answered(env); err != nil || answer != Unconfirmed {
			return err
		}
		left := r.Until.Sub(env.Host.Now())
		switch {
		case left <= 0 || time.Since(began) >= longest: // the second is by a clock that nobody sets
			return nil
		case left <= next:
			say(left.Round(time.Second))
			next = left - often
		}
		return pendingError{}
	})
	return answer, err
}

// MarkCompleted makes the change count.
func (r *Record) MarkCompleted(env *step.Env) error {
	if r.State == OnTrial { // it's only this node's
		if err := r.RecordHashes(env); err != nil {
			return err
		}
	}
	return r.Set(env, Completed)
}

// RecordHashes notes what the change has made of the files. What somebody else has written on trial is an edit, as it'd be later.
func (r *Record) RecordHashes(env *step.Env) error {
	for i := range r.Files {
		data, err := host.ReadIfExists(env.Host, r.Files[i].Path)
		if err != nil {
			return err
		}
		r.Files[i].After = cmp.Or(r.Files[i].Wanted, host.HashOf(data))
	}
	return nil
}
