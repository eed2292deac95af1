// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"github.com/pkg/errors"
)

// Update writes with the resource version it read, so a write by another client in between is a conflict, and the object is read
// again.
func (r *Real) Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error) {
	what, err := refOf(obj)
	if err != nil {
		return false, err
	}
	err = r.call(ctx, func(ctx context.Context, c *conn) error {
		if found, err = c.fill(ctx, obj); err != nil || !found {
			return err
		}
		changed, err := change()
		if err != nil || !changed {
			return errors.Wrapf(err, "update %s", what)
		}
		return c.replace(ctx, what, obj)
	})
	return found, err
}

// Update also changes objects written by earlier steps of the plan.
func (p *Plan) Update(ctx context.Context, obj Object, change func() (changed bool, err error)) (found bool, err error) {
	if found, err = p.Get(ctx, obj); err != nil || !found {
		return found, err
	}
	changed, err := change()
	if err != nil || !changed {
		return true, err
	}
	return true, p.Ensure(ctx, obj)
}
