// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// explainTimeout bounds the search for a failure's cause.
const explainTimeout = time.Minute

// errCauseKnown ends a wait that can't succeed.
var errCauseKnown = errors.New("stopped waiting because the cause is known:")

// Wait says how long a wait may last, and how to speak of it.
type Wait struct {
	Limit time.Duration
	// Field is the timeout of the configuration that sets Limit; empty if none does.
	Field string
	// Failure says what it means that the wait failed.
	Failure string
	// Say shows a line of progress.
	Say func(format string, args ...any)
}

// Guard runs wait for at most w.Limit, and watches h meanwhile: once it knows a cause that won't pass, it ends the wait. It then
// returns an *Error with the findings, as it does when time runs out. A long wait says what it sees.
func Guard(ctx context.Context, h View, w Wait, t Target, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, w.Limit)
	defer cancel()
	began, p := h.Now(), newProgress(h, w)
	ctx, giveUp := context.WithCancelCause(retry.Reporting(ctx, p.tried))
	var found []fault.Finding
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if found = watch(watching, h, t, began, p); len(found) > 0 {
			giveUp(errCauseKnown)
		}
	}()
	err := wait(ctx)
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	stop()
	<-ended
	upAt := time.Now()
	giveUp(nil)
	switch {
	case err == nil:
		return nil
	case len(found) > 0:
		return &Error{Err: errors.Errorf("%s; %v", w.Failure, errCauseKnown), Findings: found}
	case late:
		causes := causesOf(ctx, h, began, t, p)
		if !slices.ContainsFunc(causes, func(s symptom) bool { return s.minDuration != never }) {
			err = p.slow(upAt, err)
		}
		return withCauses(err, causes)
	}
	return err
}

// Explain adds to err the findings of a look at h. began is the start of the failed operation.
func Explain(ctx context.Context, h View, began time.Time, t Target, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // the user has stopped the run
		return err
	}
	return withCauses(err, causesOf(ctx, h, began, t, nil))
}

func withCauses(err error, causes []symptom) error {
	if len(causes) == 0 {
		return err
	}
	return &Error{Err: err, Findings: findings(causes)}
}

// causesOf looks once more after a failure, even if ctx has ended, and notes the progress of a wait since its last look, which may have
// been long ago. A look that ran out of time finds nothing.
func causesOf(ctx context.Context, h View, began time.Time, t Target, p *progress) []symptom {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTimeout)
	defer cancel()
	t.Waiting = true
	t.Since = beginning(ctx, h, began)
	found, _ := look(ctx, h, t, &journal{}, p)
	return found
}
