// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/retry"
)

// pace says how often to ask, and how long a seemingly final answer may last: a starting control plane gives such answers for a
// moment.
type pace struct {
	first, slowest time.Duration
	// settle is for garbage, or a signature that doesn't match.
	settle time.Duration
	// make is for things that a cluster lacks while init makes it: the right to read cluster-info, then cluster-info, then its
	// signature. If a controller manager that signs fails, another takes over within 20 s, or minutes on a slow host.
	make time.Duration
}

// orUsual fills in what p leaves open. limit is the time for all tries: a user who raises it has a slow cluster.
func (p pace) orUsual(limit time.Duration) pace {
	return pace{
		first:   cmp.Or(p.first, 100*time.Millisecond),
		slowest: cmp.Or(p.slowest, time.Second/2),
		settle:  cmp.Or(p.settle, 2*time.Second),
		make:    cmp.Or(p.make, max(30*time.Second, limit/10)),
	}
}

// retry calls op until it succeeds, fails for good, or ctx ends. The error is always an *Error.
func (p pace) retry(ctx context.Context, where string, progress func(string, ...any), op func(context.Context) error) error {
	var limit time.Duration
	if deadline, ok := ctx.Deadline(); ok {
		limit = time.Until(deadline)
	}
	p = p.orUsual(limit)
	var told string
	var kind Kind
	since := time.Now() // of the first answer of this kind
	passes := func(err error) bool {
		if now := kindOf(err); now != kind {
			kind, since = now, time.Now()
		}
		if p.final(kind, time.Since(since)) {
			return false
		}
		if text := err.Error(); text != told {
			progress("Waiting: %s", text)
			told = text
		}
		return true
	}
	err := retry.Policy{First: p.first, Slowest: p.slowest, Retryable: passes}.Do(ctx, op)
	var answer *Error
	var ended *retry.Error
	switch {
	case errors.As(err, &answer):
		answer.Where = where
		return answer
	case errors.As(err, &ended):
		return &Error{Unreachable, where, "gave up (" + ended.Cause.Error() + "); the last answer", ended.Last}
	}
	return err
}

// final reports whether another try is useless after answers of a kind have lasted for a while.
func (p pace) final(kind Kind, lasts time.Duration) bool {
	switch kind {
	case Unreachable:
		return false
	case Forbidden, NoInfo, UnknownToken:
		return lasts >= p.make
	case NotKube, Malformed, BadSignature:
		return lasts >= p.settle
	}
	return true
}

func kindOf(err error) Kind {
	var answer *Error
	if errors.As(err, &answer) {
		return answer.Kind
	}
	return Unreachable
}
