// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"

	"github.com/pkg/errors"
	"google.golang.org/grpc/credentials"
)

// Health implements Etcd.
func (r *Real) Health(ctx context.Context) ([]Health, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	conns, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conns.close()
	members, _, err := first(ctx, conns, func(ctx context.Context, c client) ([]Member, error) { return c.memberList(ctx, false) })
	if err != nil {
		return nil, errors.WithMessage(err, "ask for the members of etcd")
	}
	sortByPeer(members)
	trust, err := r.credentials()
	if err != nil {
		return nil, err
	}
	all := make([]Health, len(members))
	var group sync.WaitGroup
	for i, m := range members {
		group.Go(func() {
			all[i].Member = m
			all[i].Answers, all[i].Err = ask(ctx, m, trust)
		})
	}
	group.Wait()
	return all, nil
}

// ask returns why a member does not work, and whether it answers.
func ask(ctx context.Context, m Member, trust credentials.TransportCredentials) (answers bool, err error) {
	if len(m.ClientURLs) == 0 {
		return false, errors.New("it has not started yet")
	}
	var all conns
	defer func() { all.close() }()
	for _, u := range m.ClientURLs {
		conn, err := connect(u, trust)
		if err != nil {
			return false, err
		}
		all = append(all, conn)
	}
	status, _, err := first(ctx, all, func(ctx context.Context, c client) (statusAnswer, error) { return c.status(ctx) })
	switch {
	case err != nil:
		return false, err
	case status.header.member != m.ID:
		return true, errors.Errorf("member %x answers in its place", status.header.member)
	case status.leader == 0:
		return true, errors.New("it has no leader")
	}
	return true, nil
}
