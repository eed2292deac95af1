// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/encoding/prototext"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/parallel"
)

func (r *Real) Health(ctx context.Context) ([]Health, error) {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	members, err := r.anyView(ctx)
	if err != nil {
		return nil, errors.WithMessage(err, "list the members of etcd")
	}
	return r.askEach(ctx, members), nil
}

func (r *Real) HealthOf(ctx context.Context, members []Member) []Health {
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	return r.askEach(ctx, members)
}

// anyView returns the members as any one of them knows them, which needs no quorum.
func (r *Real) anyView(ctx context.Context) ([]Member, error) {
	all, err := r.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer all.close()
	one, err := r.ofOneCluster(ctx, all)
	if err != nil {
		return nil, err
	}
	members, _, err := first(ctx, r.answerTime(), one, func(ctx context.Context, c *clientv3.Client) ([]Member, error) {
		return list(ctx, c, clientv3.WithSerializable())
	})
	return members, err
}

// askEach asks each member for its status, all in parallel.
func (r *Real) askEach(ctx context.Context, members []Member) []Health {
	return parallel.Map(members, 0, func(m Member) Health {
		on, err := r.reach(ctx, m)
		defer on.close()
		if err == nil && on.status.Leader == 0 {
			err = errors.New("it has no leader")
		}
		health := Health{Member: m, Answers: on.status != nil, ServedCluster: on.status.GetHeader().GetClusterId(), Err: err}
		if on.status.GetHeader().GetMemberId() == m.ID {
			health.Status = statusOf(on.status)
		}
		return health
	})
}

type connection struct {
	clients
	client *clientv3.Client // the client that got an answer
	status *pb.StatusResponse
}

// reach connects to a member at its client URLs, and makes sure it's the right member. Callers close it, even after an error.
func (r *Real) reach(ctx context.Context, m Member) (on connection, err error) {
	if len(m.ClientURLs) == 0 {
		return on, errors.New("it has not started yet")
	}
	if on.clients, err = r.connect(m.ClientURLs); err != nil {
		return on, err
	}
	on.status, on.client, err = first(ctx, r.answerTime(), on.clients, func(ctx context.Context, c *clientv3.Client) (*pb.StatusResponse, error) {
		status, err := c.Status(ctx, c.Endpoints()[0])
		return (*pb.StatusResponse)(status), err
	})
	if err == nil && on.status.GetHeader().GetMemberId() != m.ID {
		err = errors.Errorf("member %x answers in its place", on.status.GetHeader().GetMemberId())
	}
	return on, err
}

func statusOf(s *pb.StatusResponse) Status {
	return Status{
		Version: s.GetVersion(), Leader: s.GetLeader(),
		Committed: s.GetRaftIndex(), Applied: s.GetRaftAppliedIndex(), Revision: s.GetHeader().GetRevision(),
		Size: s.GetDbSize(), InUse: s.GetDbSizeInUse(), Quota: s.GetDbSizeQuota(), Alarms: alarmsIn(s.GetErrors()),
	}
}

// alarmsIn finds the alarms in a status's errors, AlarmMembers as protobuf text. (A request for alarms would need a quorum.)
func alarmsIn(texts []string) []Alarm {
	var alarms []Alarm
	for _, text := range texts {
		var alarm pb.AlarmMember
		if prototext.Unmarshal([]byte(text), &alarm) == nil && alarm.GetAlarm() != pb.AlarmType_NONE {
			alarms = append(alarms, Alarm{alarm.GetMemberID(), alarm.GetAlarm().String()})
		}
	}
	return alarms
}

// HealthTimeout bounds a question for the health of all members: it's enough to ask them in parallel, and a hanging API server
// before them. It's also how long to wait for members to become healthy: they may be restarting, or electing a leader.
const HealthTimeout = 10 * time.Second

// AskHealth asks e for the health of its members, for at most HealthTimeout.
func AskHealth(ctx context.Context, e Etcd) ([]Health, error) {
	ctx, cancel := context.WithTimeout(ctx, HealthTimeout)
	defer cancel()
	return e.Health(ctx)
}

// WithHealth adds to an error from e which members work, if they can be asked.
func WithHealth(ctx context.Context, e Etcd, err error) error {
	all, failure := AskHealth(ctx, e)
	if failure != nil || len(all) == 0 {
		return err
	}
	return fmt.Errorf("%w; of etcd's members, %s", err, DescribeHealth(all, ""))
}

// DescribeHealth lists the members that work, and why each of the others doesn't. It leaves out the member at peerURL.
func DescribeHealth(all []Health, peerURL string) string {
	var working, others []string
	for _, m := range all {
		switch {
		case m.At(peerURL):
		case m.Err == nil:
			working = append(working, m.Label())
		default:
			others = append(others, fmt.Sprintf("%s does not (%v)", m.Label(), m.Err))
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

func (r *Real) MoveLeader(ctx context.Context, id Identity) (moved bool, err error) {
	err = r.try(ctx, func(ctx context.Context, _ *clientv3.Client, now []Member) error {
		own := id.Find(now)
		if own < 0 || len(now) == 1 { // a single one may not answer any more where it's asked, and nobody waits for that
			return nil
		}
		m := now[own]
		successor := successorOf(r.askEach(ctx, now), m.ID)
		if successor == nil || successor.Status.Leader != m.ID {
			return nil
		}
		on, err := r.reach(ctx, m)
		defer on.close()
		if err != nil {
			return err
		}
		moved = true // even if the answer is lost
		_, err = on.client.MoveLeader(ctx, successor.ID)
		return err
	})
	return moved && err == nil, errors.WithMessagef(err, "make another member than %s the leader of etcd", id)
}

// successorOf returns the best healthy voter to take over from a member, of the newest version, because it needn't stop again
// in the same upgrade, and among those, the voter furthest ahead.
func successorOf(all []Health, id uint64) *Health {
	var best *Health
	for i, h := range all {
		if h.Err == nil && !h.Learner && h.ID != id && (best == nil || succeedsBetter(h.Status, best.Status)) {
			best = &all[i]
		}
	}
	return best
}

func succeedsBetter(a, b Status) bool {
	if a.Version != b.Version {
		va, err := version.ParseSemantic(a.Version)
		vb, otherErr := version.ParseSemantic(b.Version)
		if err == nil && otherErr == nil {
			return vb.LessThan(va)
		}
	}
	return a.Applied > b.Applied
}

func (r *Real) CaughtUp(ctx context.Context, id Identity) error {
	var goal uint64
	err := r.try(ctx, func(ctx context.Context, _ *clientv3.Client, now []Member) error {
		all := r.askEach(ctx, now)
		if leader := slices.IndexFunc(all, Health.Leads); goal == 0 && leader >= 0 {
			goal = all[leader].Status.Committed
		}
		i := id.Find(now)
		switch {
		case i < 0:
			return errors.New("it is not a member: something else has removed it")
		case all[i].Err != nil:
			return retryable(all[i].Err)
		case all[i].Learner:
			return retryable(errors.New("it is still a learner, which has no vote"))
		case goal == 0:
			return retryable(errors.New("the leader does not answer"))
		case all[i].Status.Applied < goal:
			return retryable(errors.Errorf("it has applied %d of the leader's %d entries", all[i].Status.Applied, goal))
		}
		return nil
	})
	return errors.WithMessagef(err, "wait for the member of etcd at %s", id)
}
