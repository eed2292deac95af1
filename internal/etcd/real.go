// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// Options say how to reach etcd, and as whom.
type Options struct {
	// Endpoints lists client URLs of members, such as https://192.0.2.1:2379. Not all of them need to answer.
	Endpoints func(ctx context.Context) ([]string, error)
	// CA, Cert and Key are paths: of the CA of etcd's members, and of an administrator's client certificate and key.
	CA, Cert, Key string
	// ReadFile reads them on first use.
	ReadFile func(path string) ([]byte, error)
	// Own lists the client URLs of this host's member; nil for a host without one. OwnCluster returns the ID of its cluster by the
	// data on this host, for when it doesn't answer; 0 without data. Members of other clusters aren't asked, and Warn tells the user
	// once.
	Own        func(ctx context.Context) ([]string, error)
	OwnCluster func() (uint64, error)
	Warn       func(message, remedy string)
	// Plain allows client URLs of http. CA, Cert and Key may then be empty, too, as the API server's flags for an external etcd.
	Plain bool
	// Timeout bounds each method (the configuration's timeouts.etcdAPICall).
	Timeout time.Duration
}

// Real is the membership of a real cluster. It connects when it's used.
type Real struct {
	options Options
	warned  sync.Once
}

var _ Etcd = (*Real)(nil)

// New reads and sends nothing yet.
func New(o Options) *Real { return &Real{options: o} }

func (r *Real) Members(ctx context.Context) (members []Member, err error) {
	err = r.try(ctx, func(_ context.Context, _ *clientv3.Client, now []Member) error {
		members = now
		return nil
	})
	return members, errors.WithMessage(err, "list the members of etcd")
}

func (r *Real) Join(ctx context.Context, name, peerURL string) (members []Member, added bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c *clientv3.Client, now []Member) error {
		if m := byPeer(now, peerURL); m != nil {
			m.Name = cmp.Or(m.Name, name)
			members = now
			return nameFault(*m, name)
		}
		if err := conflictingMember(now, name); err != nil {
			return err
		}
		_, err := c.MemberAddAsLearner(ctx, []string{peerURL})
		added = true // or not: the next look shows it
		if err == nil {
			return retryable(errors.New("it was added, but the members do not know it yet"))
		}
		return err
	})
	return members, added && members != nil, errors.WithMessagef(err, "add %s to etcd", peerURL)
}

func nameFault(m Member, name string) error {
	if m.Name == name {
		return nil
	}
	return errors.Errorf("the member at %s is called %q, not %q: join with that name (--node-name), or remove member %x first",
		m.PeerURL, m.Name, name, m.ID)
}

// conflictingMember names the member that blocks adding another of this name. Etcd accepts one learner at a time, and isn't even
// asked for a second: a request stays in the log even if the members refuse to apply it. A restarted member reads it again, and
// from then on tries to reach the nonexistent member, some 20 times a second (seen with etcd 3.7.0).
func conflictingMember(now []Member, name string) error {
	for _, m := range now {
		if m.Name == name {
			return errors.Errorf("it already has a member %q, at %s: reset that node, or remove its member %x, before another node takes its name", name, m.PeerURL, m.ID)
		}
	}
	for _, m := range now {
		if m.Learner {
			return retryable(errors.Errorf("member %x at %s is still a learner, and etcd takes one at a time; if its node is gone for good, remove that member", m.ID, m.PeerURL))
		}
	}
	return nil
}

func (r *Real) Promote(ctx context.Context, peerURL string) error {
	err := r.try(ctx, func(ctx context.Context, c *clientv3.Client, now []Member) error {
		m := byPeer(now, peerURL)
		switch {
		case m == nil:
			return errors.New("it is not a member: something else has removed it; join again")
		case !m.Learner:
			return nil
		}
		_, err := c.MemberPromote(ctx, m.ID)
		return err
	})
	return errors.WithMessagef(err, "promote %s in etcd", peerURL)
}

func (r *Real) Leave(ctx context.Context, peerURL string) (removed bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c *clientv3.Client, now []Member) error {
		m := byPeer(now, peerURL)
		if m == nil || len(now) == 1 {
			return nil
		}
		removed = true // even if the answer is lost
		_, err := c.MemberRemove(ctx, m.ID)
		return err
	})
	return removed && err == nil, errors.WithMessagef(err, "remove %s from etcd", peerURL)
}

func (r *Real) Move(ctx context.Context, id uint64, from []string, to string) (moved bool, err error) {
	err = r.try(ctx, func(ctx context.Context, c *clientv3.Client, now []Member) error {
		own := func(m Member) bool { return id == 0 || m.ID == id }
		i := slices.IndexFunc(now, func(m Member) bool { return own(m) && m.At(from...) })
		switch there := byPeer(now, to); {
		case i < 0 && there != nil && own(*there):
			return nil
		case i < 0 && id != 0:
			return errors.Errorf("member %x is not at %s; the members are at %s", id, strings.Join(from, " or "), peerURLs(now))
		case i < 0:
			return errors.Errorf("%s is not a member; the members are at %s", strings.Join(from, " or "), peerURLs(now))
		case there != nil:
			return fault.New("member "+there.Label()+" is still there",
				"move that member's control plane away first; if two control planes have swapped their addresses, move one of them to a third address first")
		}
		moved = true // even if the answer is lost
		others := slices.DeleteFunc(now[i].PeerURLs(), func(url string) bool { return slices.Contains(from, url) })
		_, err := c.MemberUpdate(ctx, now[i].ID, append([]string{to}, others...))
		return err
	})
	return moved && err == nil, errors.WithMessagef(err, "move the member of etcd to %s", to)
}

func peerURLs(members []Member) string {
	var urls []string
	for _, m := range members {
		urls = append(urls, m.PeerURL)
	}
	return strings.Join(urls, ", ")
}

// operation is one try of a change, with a client for a member and the current membership.
type operation func(ctx context.Context, c *clientv3.Client, now []Member) error

// try calls op until it succeeds, fails for good, or the time is over.
func (r *Real) try(ctx context.Context, op operation) error {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	all, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer all.close()
	err = retry.Policy{First: firstDelay, Slowest: slowestDelay, Retryable: isRetryable}.Do(ctx, func(ctx context.Context) error {
		return r.once(ctx, all, op)
	})
	if wrongCertificate(err) {
		return errors.WithMessage(err, "a certificate is not accepted (`slipway certs check-expiration` here and on the other control planes shows expired ones)")
	}
	return err
}

// once looks at the membership, and calls op with the first member to answer, whose list is current, from the leader.
func (r *Real) once(ctx context.Context, all clients, op operation) error {
	all, err := r.ofOneCluster(ctx, all)
	if err != nil {
		return err
	}
	now, c, err := first(ctx, r.answerTime(), all, func(ctx context.Context, c *clientv3.Client) ([]Member, error) { return list(ctx, c) })
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.answerTime())
	defer cancel()
	return named(c, op(ctx, c, now))
}

// list returns the members as the whole cluster knows them, sorted by peer URL. With the option WithSerializable, it returns this
// member's view, which needs no quorum.
func list(ctx context.Context, c *clientv3.Client, options ...clientv3.OpOption) ([]Member, error) {
	answer, err := c.MemberList(ctx, options...)
	if err != nil {
		return nil, err
	}
	var members []Member
	for _, m := range answer.Members {
		stored := storedMember{m.ID, m.PeerURLs, m.IsLearner, m.Name, m.ClientURLs}
		members = append(members, stored.member())
		members[len(members)-1].Cluster = answer.Header.GetClusterId()
	}
	sortByPeer(members)
	return members, nil
}

func sortByPeer(members []Member) {
	sort.SliceStable(members, func(i, j int) bool { return members[i].PeerURL < members[j].PeerURL })
}

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
