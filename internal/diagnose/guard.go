// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// explainTime bounds the search for a failure's cause.
const explainTime = 15 * time.Second

// errCauseKnown ends a wait that can't succeed.
var errCauseKnown = errors.New("stopped waiting because the cause is known:")

// Guard runs wait for at most limit, and watches h meanwhile: once it knows a cause that won't pass, it ends the wait. It then
// returns an *Error with the findings, as it does when time runs out. failure says what the failed wait means.
func Guard(ctx context.Context, h View, limit time.Duration, t Target, failure string, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := h.Now()
	ctx, giveUp := context.WithCancelCause(ctx)
	var found []fault.Finding
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if found = Watch(watching, h, t); len(found) > 0 {
			giveUp(errCauseKnown)
		}
	}()
	err := wait(ctx)
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	stop()
	<-ended
	giveUp(nil)
	switch {
	case err == nil:
		return nil
	case len(found) > 0:
		return &Error{Err: errors.Errorf("%s; %v", failure, errCauseKnown), Findings: found}
	case late:
		return Explain(ctx, h, began, t, err)
	}
	return err
}

// Explain adds to err the findings of a look at h. began is the start of the failed operation.
func Explain(ctx context.Context, h View, began time.Time, t Target, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // the user has stopped the run
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	t.Waiting = true
	t.Since = Beginning(ctx, h, began)
	if found := Run(ctx, h, t); len(found) > 0 {
		return &Error{Err: err, Findings: found}
	}
	return err
}
