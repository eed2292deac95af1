// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"crypto/tls"
	"sync"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Health implements Etcd.
func (r *Real) Health(ctx context.Context) ([]Health, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	all, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer all.close()
	members, _, err := first(ctx, all, func(ctx context.Context, c *clientv3.Client) ([]Member, error) {
		return list(ctx, c, clientv3.WithSerializable())
	})
	if err != nil {
		return nil, errors.WithMessage(err, "list the members of etcd")
	}
	trust, err := r.tls()
	if err != nil {
		return nil, err
	}
	health := make([]Health, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() {
			health[i].Member = m
			health[i].Answers, health[i].Err = ask(ctx, m, trust)
		})
	}
	group.Wait()
	return health, nil
}

// ask returns why a member does not work, and whether it answers.
func ask(ctx context.Context, m Member, trust *tls.Config) (answers bool, err error) {
	if len(m.ClientURLs) == 0 {
		return false, errors.New("it has not started yet")
	}
	all, err := connect(m.ClientURLs, trust)
	if err != nil {
		return false, err
	}
	defer all.close()
	status, _, err := first(ctx, all, func(ctx context.Context, c *clientv3.Client) (*clientv3.StatusResponse, error) {
		return c.Status(ctx, c.Endpoints()[0])
	})
	switch {
	case err != nil:
		return false, err
	case status.Header.GetMemberId() != m.ID:
		return true, errors.Errorf("member %x answers in its place", status.Header.GetMemberId())
	case status.Leader == 0:
		return true, errors.New("it has no leader")
	}
	return true, nil
}
