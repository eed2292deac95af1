// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// awaitConfirmation waits for another process to confirm the change, and keeps the node's lock and the Lease meanwhile.
func (r *Run) awaitConfirmation(ctx context.Context, env *step.Env) error {
	if r.record == nil {
		return nil
	}
	if err := r.record.WaitUntil(env, env.Host.Now().Add(r.Try)); err != nil {
		return err
	}
	return r.Wait(func() error {
		answer, err := awaitAnswer(ctx, env, r.record)
		if err != nil || answer == trial.Confirmed {
			return err
		}
		return fault.New(causeOf(env, r.record), "if the change is right, run the same command again, and `slipway reconfigure --confirm` within "+r.Try.String())
	})
}

func awaitAnswer(ctx context.Context, env *step.Env, record *trial.Record) (trial.Answer, error) {
	env.UI.Printf("The change works. It stays on trial until %s UTC, then it's rolled back on this node", record.Until.Format(time.TimeOnly))
	return record.AwaitAnswer(ctx, env, func(left time.Duration) {
		env.UI.Printf("%s left to run `slipway reconfigure --confirm` on this node", left)
	})
}

// Watch is the workflow of the watching unit: the run is gone, so it waits in its place if there's a confirmation to wait for.
// Without an unfinished change, only the end of the run is missing.
func Watch() []step.Phase {
	wait := step.Phase{Name: "confirmation", Summary: "Wait for `slipway reconfigure --confirm`", Run: func(ctx context.Context, env *step.Env) error {
		unfinished, err := trial.Unfinished(env)
		if err != nil || unfinished == nil || !unfinished.AwaitsConfirmation() {
			return err
		}
		_, err = awaitAnswer(ctx, env, unfinished)
		return err
	}}
	return append([]step.Phase{wait}, finish(true)...)
}

// Answer gives this node's change on trial an answer, and returns the workflow that acts on it: nil if the change is over. asked says
// that an earlier call gave the same answer. Until somebody else's run is over, the caller doesn't get the node's lock, and asks again.
func Answer(env *step.Env, answer trial.Answer, asked bool) ([]step.Phase, error) {
	last, err := trial.Last(env)
	switch {
	case err != nil:
		return nil, err
	case last == nil:
		return nil, fault.New("no change is on trial on this node", "`slipway reconfigure --try DURATION` begins one")
	case last.Finished():
		return nil, outcomeError(last, answer, asked)
	}
	if err := takes(last, answer); err != nil {
		return nil, err
	}
	if last.AwaitsConfirmation() {
		if err := give(env, last, answer); err != nil {
			return nil, err
		}
	}
	return finishWithAnswer(last, answer), nil
}

// takes fails if the change's state leaves no room for the answer.
func takes(last *trial.Record, answer trial.Answer) error {
	switch of := nameOf(last); {
	case last.State == trial.Storing && answer == trial.Refused:
		return fault.New(of+" was confirmed", "once it has completed, `slipway reconfigure --revert` takes it back")
	case last.State == trial.Reverting && answer == trial.Confirmed:
		return fault.New(of+" is being put back: "+last.Cause, "if it is right, begin it again")
	case last.State == trial.OnTrial && last.Until == nil:
		return fault.New(of+" hasn't passed its trial yet", "wait until its run reports success; if that run is gone, systemd rolls the change back (journalctl -u slipway-watch)")
	}
	return nil
}

// give answers a waiting change, unless it has the answer already.
func give(env *step.Env, last *trial.Record, answer trial.Answer) error {
	given, err := last.Answered(env)
	switch {
	case err != nil || given == answer:
		return err
	case given != trial.Unconfirmed:
		return fault.New(nameOf(last)+" already has another answer: "+string(given), "to see the outcome, run `journalctl -u slipway-watch`")
	case answer == trial.Confirmed && !env.Host.Now().Before(*last.Until):
		return fault.New(nameOf(last)+" is being put back: "+causeOf(env, last), "if it is right, begin it again")
	}
	return last.Answer(env, answer)
}

// finishWithAnswer is Finish, and fails if the change has ended otherwise than its answer says.
func finishWithAnswer(last *trial.Record, answer trial.Answer) []step.Phase {
	return append(finish(false), step.Phase{Name: "outcome", Summary: "Check the change's outcome", Run: func(_ context.Context, env *step.Env) error {
		now, err := last.Reload(env)
		if err != nil {
			return err
		}
		return outcomeError(now, answer, true)
	}})
}

// outcomeError is the error of a late answer; nil if it was heard.
func outcomeError(last *trial.Record, answer trial.Answer, asked bool) error {
	wanted := map[trial.Answer]trial.State{trial.Confirmed: trial.Completed, trial.Refused: trial.Reverted}[answer]
	switch of := nameOf(last); {
	case asked && wanted == trial.Completed && last.State == wanted && last.Cause != "":
		return fault.New(of+" counts on this node, but only a part of it is stored: "+last.Cause, "compare that ConfigMap with it, and run `slipway reconfigure` with its documents again")
	case asked && last.State == wanted:
		return nil
	case last.State == trial.Reverted:
		return fault.New("no change is on trial on this node: "+of+" was put back: "+last.Cause, "if it is right, begin it again")
	default:
		return fault.New("no change is on trial on this node: "+of+" has already completed", "`slipway reconfigure --revert` takes it back")
	}
}

func nameOf(record *trial.Record) string {
	return "the change of " + ui.Time(record.Began)
}
