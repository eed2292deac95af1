// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// page answers a request for a range of the numbered keys below /k/.
func (k *fakeKeys) page(r *pb.RangeRequest) *pb.RangeResponse {
	answer := &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: keyRevision}, Count: k.count}
	if r.CountOnly || r.Revision != 0 && r.Revision != keyRevision {
		return answer
	}
	for i := range k.count {
		key := fmt.Sprintf("/k/%04d", i)
		if key < string(r.Key) || key >= string(r.RangeEnd) {
			continue
		}
		if answer.More = int64(len(answer.Kvs)) == r.Limit; answer.More {
			break
		}
		answer.Kvs = append(answer.Kvs, &mvccpb.KeyValue{Key: []byte(key), Value: []byte("v" + key)})
	}
	return answer
}

func TestValues(t *testing.T) {
	for _, count := range []int64{0, 1, valuesPage, 2*valuesPage + 1} {
		f := voters("a")
		f.keys = &fakeKeys{count: count}
		seen := map[string]bool{}
		err := f.serve(t, time.Minute).Values(t.Context(), "/k/", func(key string, value []byte) {
			seen[key] = string(value) == "v"+key
		})
		if err != nil || int64(len(seen)) != count {
			t.Errorf("%d of %d values: %v", len(seen), count, err)
		}
		for key, right := range seen {
			if !right {
				t.Errorf("%s has another key's value", key)
			}
		}
	}
	if err := NewPlan(nil).Values(t.Context(), "/k/", nil); err == nil {
		t.Error("a plan says what etcd has")
	}
}
