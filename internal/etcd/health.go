// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"

	"github.com/pkg/errors"
)

// Health implements Etcd.
func (r *Real) Health(ctx context.Context) ([]Health, error) {
	members, err := r.known(ctx)
	if err != nil {
		return nil, errors.WithMessage(err, "list the members of etcd")
	}
	all := make([]Health, len(members))
	var asked sync.WaitGroup
	for i, m := range members {
		asked.Go(func() { all[i] = Health{m, r.fault(ctx, m)} })
	}
	asked.Wait()
	return all, nil
}

// known lists the members as the first one knows them that answers.
func (r *Real) known(ctx context.Context) (members []Member, err error) {
	conns, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	_, err = conns.each(ctx, func(ctx context.Context, c client) (bool, error) {
		members, err = c.memberList(ctx, false)
		return true, err
	})
	return members, err
}

// fault is why a member is not healthy.
func (r *Real) fault(ctx context.Context, m Member) error {
	if len(m.ClientURLs) == 0 {
		return errors.New("it has never started")
	}
	conns, err := r.connect(m.ClientURLs)
	if err != nil {
		return err
	}
	defer conns.close()
	_, err = conns.each(ctx, func(ctx context.Context, c client) (bool, error) {
		_, err := c.memberList(ctx, true)
		return true, err
	})
	return err
}
