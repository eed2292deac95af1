// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"sync"
	"time"

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

// HealthTime bounds a question for the health of all members: it is enough to ask them side by side, and before that an
// API server that hangs. It is also how long to wait for members to become healthy: they may be restarting, or electing
// a leader.
const HealthTime = 10 * time.Second

// AskHealth asks e for the health of its members, for at most HealthTime.
func AskHealth(ctx context.Context, e Etcd) ([]Health, error) {
	ctx, cancel := context.WithTimeout(ctx, HealthTime)
	defer cancel()
	return e.Health(ctx)
}

// WithStanding adds to an error of e which members work, if they can be asked.
func WithStanding(ctx context.Context, e Etcd, err error) error {
	all, failure := AskHealth(ctx, e)
	if failure != nil || len(all) == 0 {
		return err
	}
	return &standingError{err, Standing(all, "")}
}

// standingError is an error of etcd and which of its members work.
type standingError struct {
	err      error
	standing string
}

func (e *standingError) Error() string { return e.err.Error() + "; of etcd's members, " + e.standing }
func (e *standingError) Unwrap() error { return e.err }

// Standing lists the members that work, and why each of the others does not. The one at peerURL is left out.
func Standing(all []Health, peerURL string) string {
	var working, others []string
	for _, m := range all {
		name := cmp.Or(m.Name, m.PeerURL)
		switch {
		case m.PeerURL == peerURL:
		case m.Err == nil:
			working = append(working, name)
		default:
			others = append(others, fmt.Sprintf("%s does not (%v)", name, m.Err))
		}
	}
	switch len(working) {
	case 0:
		working = []string{"none works"}
	case 1:
		working[0] += " works"
	default:
		working = []string{strings.Join(working, ", ") + " work"}
	}
	return strings.Join(append(working, others...), "; ")
}
