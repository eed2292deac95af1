// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// valuesPage is how many values are read at a time. A Secret has at most 1 MiB, and an answer must fit into memory.
const valuesPage = 100

func (r *Real) Values(ctx context.Context, prefix string, each func(key string, value []byte)) error {
	from, revision := prefix, int64(0)
	for {
		var page *clientv3.GetResponse
		err := r.try(ctx, func(ctx context.Context, c *clientv3.Client, _ []Member) (err error) {
			page, err = c.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(valuesPage), clientv3.WithRev(revision))
			return err
		})
		if err != nil {
			return errors.WithMessagef(err, "read the values of %s in etcd", prefix)
		}
		revision = page.Header.Revision
		for _, kv := range page.Kvs {
			each(string(kv.Key), kv.Value)
			from = string(kv.Key) + "\x00"
		}
		if !page.More {
			return nil
		}
	}
}
