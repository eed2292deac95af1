// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/test/fact"
)

// fakeKeys has some keys, and sends its watchers the next event.
type fakeKeys struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	count    int64
	next     mvccpb.Event_EventType
	watched  int64 // the first revision watched
	deleted  string
	refusals int // of deletes
	// compacted is the revision of the last compaction, compactions how often members were asked.
	mu          sync.Mutex
	compacted   int64
	compactions int
}

const keyRevision = 7

func (k *fakeKeys) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return k.page(r), nil
}

func (k *fakeKeys) Compact(_ context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.compactions++
	if r.Revision <= k.compacted {
		return nil, rpctypes.ErrGRPCCompacted
	}
	if !r.Physical {
		return nil, status.Error(codes.InvalidArgument, "the space is not free yet")
	}
	k.compacted = r.Revision
	return &pb.CompactionResponse{Header: &pb.ResponseHeader{}}, nil
}

func (k *fakeKeys) DeleteRange(_ context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if k.refusals > 0 {
		k.refusals--
		return nil, status.Error(codes.Unavailable, "transport is closing")
	}
	k.deleted = string(r.Key)
	return &pb.DeleteRangeResponse{Header: &pb.ResponseHeader{}}, nil
}

func (k *fakeKeys) Watch(stream pb.Watch_WatchServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		create := r.GetCreateRequest()
		if create == nil {
			continue
		}
		k.watched = create.StartRevision
		answer := &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: keyRevision}, Created: true}
		if err := stream.Send(answer); err != nil {
			return err
		}
		event := &mvccpb.Event{Type: k.next, Kv: &mvccpb.KeyValue{Key: create.Key, ModRevision: keyRevision + 1}}
		err = stream.Send(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: keyRevision + 1}, Events: []*mvccpb.Event{event}})
		if err != nil {
			return err
		}
	}
}

func TestWithdraw(t *testing.T) {
	for name, test := range map[string]struct {
		keys      *fakeKeys
		withdrawn bool
	}{
		"after the owner's write": {&fakeKeys{count: 1, next: mvccpb.Event_PUT}, true},
		"a delete fails at first": {&fakeKeys{count: 1, next: mvccpb.Event_PUT, refusals: 1}, true},
		"no such key":             {&fakeKeys{}, false},
		"the key expires":         {&fakeKeys{count: 1, next: mvccpb.Event_DELETE}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := voters("a")
			f.keys = test.keys
			withdrawn, err := f.serve(t, time.Minute).Withdraw(t.Context(), "/registry/masterleases/192.0.2.1")
			if err != nil || withdrawn != test.withdrawn || (f.keys.deleted != "") != test.withdrawn {
				t.Errorf("withdrawn %t, %v; deleted %q", withdrawn, err, f.keys.deleted)
			}
			if f.keys.count > 0 && f.keys.watched != keyRevision+1 {
				t.Errorf("watched from revision %d", f.keys.watched)
			}
		})
	}
}

// TestWithdrawGivesUp: the owner doesn't write.
func TestWithdrawGivesUp(t *testing.T) {
	f := voters("a")
	f.keys = &fakeKeys{count: 1, next: mvccpb.Event_PUT, refusals: 1 << 30}
	_, err := f.serve(t, 300*time.Millisecond).Withdraw(t.Context(), "/k")
	fact.Error(t, err, "delete /k")
}

func TestHas(t *testing.T) {
	for _, count := range []int64{0, 1} {
		f := voters("a")
		f.keys = &fakeKeys{count: count}
		found, err := f.serve(t, time.Minute).Has(t.Context(), "/k")
		if err != nil || found != (count > 0) {
			t.Errorf("%d keys: found %t, %v", count, found, err)
		}
	}
	if _, err := NewPlan(nil).Has(t.Context(), "/k"); err == nil {
		t.Error("a plan says what etcd has")
	}
}
