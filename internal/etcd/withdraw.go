// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func (r *Real) Withdraw(ctx context.Context, key string) (withdrawn bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c *clientv3.Client, _ []Member) error {
		now, err := c.Get(ctx, key, clientv3.WithCountOnly())
		if err != nil || now.Count == 0 {
			return err
		}
		written, err := awaitWrite(ctx, c, key, now.Header.Revision+1)
		if err != nil || !written {
			return err
		}
		_, err = c.Delete(ctx, key)
		withdrawn = err == nil
		return err
	})
	return withdrawn, errors.WithMessagef(err, "delete %s in etcd", key)
}

func (r *Real) Has(ctx context.Context, key string) (found bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c *clientv3.Client, _ []Member) error {
		now, err := c.Get(ctx, key, clientv3.WithCountOnly())
		if err == nil {
			found = now.Count > 0
		}
		return err
	})
	return found, errors.WithMessagef(err, "look for %s in etcd", key)
}

// awaitWrite waits for a key's next change, and reports whether it was a write rather than a deletion.
func awaitWrite(ctx context.Context, c *clientv3.Client, key string, revision int64) (bool, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for answer := range c.Watch(clientv3.WithRequireLeader(ctx), key, clientv3.WithRev(revision)) {
		if err := answer.Err(); err != nil {
			return false, err
		}
		for _, event := range answer.Events {
			return event.Type == clientv3.EventTypePut, nil
		}
	}
	return false, errors.WithMessagef(context.Cause(ctx), "wait for the next write of %s", key)
}
