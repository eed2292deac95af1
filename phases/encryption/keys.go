// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"time"

	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// decide makes a new key if the goal needs one, sets the target, and gives this host a file that reads everything.
func (r *Run) decide(ctx context.Context, env *step.Env) error {
	turn, err := node.AcquireLease(ctx, env, node.ForEncryption)
	if err != nil {
		return err
	}
	err = r.setTarget(ctx, env)
	return turn.Release(ctx, env, err)
}

func (r *Run) setTarget(ctx context.Context, env *step.Env) error {
	ring, err := gather(ctx, env)
	if err != nil {
		return err
	}
	target, key, err := r.target(ctx, env, ring)
	if err != nil {
		return err
	}
	if target != ring.Target {
		ring, err = update(ctx, env, func(ring encryption.Keyring) (encryption.Keyring, error) {
			ring.Target = target
			return ring.With(key...)
		})
		if err != nil {
			return err
		}
	}
	return r.begin(ctx, env, ring)
}

// target returns the target for the goal, and a new key if it needs one.
func (r *Run) target(ctx context.Context, env *step.Env, ring encryption.Keyring) (string, []encryption.Key, error) {
	on := ring.Target != "" && ring.Target != encryption.Identity
	switch {
	case r.Goal == Disable && ring.Target == "", r.Goal == Rotate && !on:
		return "", nil, fault.New("this cluster's Secrets are not encrypted", "`slipway encryption enable` encrypts them")
	case r.Goal == Disable:
		return encryption.Identity, nil, nil
	case r.Goal == Enable && on:
		return ring.Target, nil, nil
	}
	if r.Goal == Rotate {
		if new, err := r.mayRotate(ctx, env, ring); err != nil || !new {
			return ring.Target, nil, err
		}
	}
	key := ring.NewKey(env.Host.Now())
	return key.Name, []encryption.Key{key}, nil
}

// justNow is how long after a rotation the same command, on whichever node, doesn't begin another.
const justNow = time.Hour

// mayRotate reports whether there's to be a new key, instead of an end to the rotation that has begun.
func (r *Run) mayRotate(ctx context.Context, env *step.Env, ring encryption.Keyring) (bool, error) {
	_, next, err := nextStep(ctx, env, ring, func([]string) {})
	switch {
	case err != nil:
		return false, err
	case next.Do != encryption.Done:
		env.UI.Printf("Resuming the change to %s", ring.Target)
		return false, nil
	case len(ring.Keys) > 1 && !r.Again && env.Host.Now().Sub(encryption.Made(ring.Target)) < justNow:
		env.UI.Warn("the key was rotated less than an hour ago, so this run doesn't rotate it again", "to do so, use --again")
		return false, nil
	}
	return true, nil
}

// begin writes the file that this API server starts with: it encrypts nothing yet, and reads all that any API server reads. A file
// that it reads already stays.
func (r *Run) begin(ctx context.Context, env *step.Env, ring encryption.Keyring) error {
	o, err := ownFile(env)
	if err == nil {
		err = o.refuseLeftover(ring)
	}
	if err != nil {
		return err
	}
	if o.data != nil && !o.unused {
		return writeOwn(env, o.data)
	}
	order := encryption.Order{encryption.Identity}.Reading(ring.Target)
	servers, err := servers(ctx, env, ring)
	if err != nil {
		return err
	}
	for _, s := range servers {
		for _, name := range s.Order {
			order = order.Reading(name)
		}
	}
	data, err := fileFor(ring, order)
	if err != nil {
		return err
	}
	return writeOwn(env, data)
}
