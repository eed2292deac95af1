// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"net/url"
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
	// signature. If a controller manager that signs fails, another takes over within 20 s.
	make time.Duration
}

func (p pace) orUsual() pace {
	return pace{
		first:   cmp.Or(p.first, 100*time.Millisecond),
		slowest: cmp.Or(p.slowest, time.Second/2),
		settle:  cmp.Or(p.settle, 2*time.Second),
		make:    cmp.Or(p.make, 30*time.Second),
	}
}

// pending is an answer that becomes final if it lasts: for pace.make if a cluster may give it while it's being made, otherwise
// for pace.settle.
type pending struct {
	fault  *Error
	making bool
}

func (p pending) Error() string { return p.fault.Error() }

func lasting(fault *Error) error { return pending{fault, false} }
func missing(fault *Error) error { return pending{fault, true} }

// retry calls op until it succeeds, fails for good, or ctx ends. The error is always an *Error.
func (p pace) retry(ctx context.Context, where string, progress func(string, ...any), op func(context.Context) error) error {
	p = p.orUsual()
	var told string
	var kind Kind
	var final *Error
	since := time.Now() // of the first answer of this kind
	passes := func(err error) bool {
		if now := kindOf(err); now != kind {
			kind, since = now, time.Now()
		}
		if final = p.final(err, time.Since(since)); final != nil {
			return false
		}
		if text := err.Error(); text != told {
			progress("Waiting: %s", text)
			told = text
		}
		return true
	}
	err := retry.Policy{First: p.first, Slowest: p.slowest, Passes: passes}.Do(ctx, op)
	if err == nil {
		return nil
	}
	if ended := (*retry.Error)(nil); errors.As(err, &ended) {
		return gaveUp(where, ended)
	}
	final.Where = where
	return final
}

// final returns err if another try is useless, else nil.
func (p pace) final(err error, lasts time.Duration) *Error {
	var fault *Error
	var wait pending
	switch {
	case errors.As(err, &wait) && wait.making && lasts >= p.make, errors.As(err, &wait) && !wait.making && lasts >= p.settle:
		return wait.fault
	case errors.As(err, &fault):
		return fault
	}
	return nil
}

func kindOf(err error) Kind {
	var wait pending
	if errors.As(err, &wait) {
		return wait.fault.Kind
	}
	return Unreachable
}

func gaveUp(where string, ended *retry.Error) error {
	var wait pending
	if errors.As(ended.Last, &wait) {
		wait.fault.Where = where
		return wait.fault
	}
	return &Error{Unreachable, where, "gave up (" + ended.Cause.Error() + "); the last answer", ended.Last}
}

// unwrapURL removes the URL, which may contain a password. where names it already.
func unwrapURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
