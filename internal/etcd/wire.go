// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"fmt"

	"github.com/pkg/errors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The calls of etcd's services Cluster and Maintenance that are used here, and
// their messages, by the field numbers of etcd's rpc.proto, which are its
// stable API. Etcd's own stubs describe all of its services when a program
// starts, and so cost every command a megabyte and a millisecond. The tests
// compare this with them.

const (
	clusterService     = "/etcdserverpb.Cluster/"
	maintenanceService = "/etcdserverpb.Maintenance/"
)

// client calls one member.
type client struct{ conn *grpc.ClientConn }

// memberList lists the members as the whole cluster knows them, or, where it
// need not be current, as the one that is asked does.
func (c client) memberList(ctx context.Context, current bool) ([]Member, error) {
	var answer listAnswer
	var request []byte
	if current {
		request = protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)
	}
	err := c.call(ctx, clusterService+"MemberList", request, &answer)
	for i := range answer.members {
		answer.members[i].Cluster = answer.header.cluster
	}
	return answer.members, err
}

func (c client) status(ctx context.Context) (statusAnswer, error) {
	var answer statusAnswer
	err := c.call(ctx, maintenanceService+"Status", nil, &answer)
	return answer, err
}

func (c client) memberAdd(ctx context.Context, peerURL string) error {
	request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), peerURL)
	asLearner := protowire.AppendVarint(protowire.AppendTag(request, 2, protowire.VarintType), 1)
	return c.call(ctx, clusterService+"MemberAdd", asLearner, &ignoredAnswer{})
}

func (c client) memberPromote(ctx context.Context, id uint64) error {
	return c.call(ctx, clusterService+"MemberPromote", idOnly(id), &ignoredAnswer{})
}

func (c client) memberRemove(ctx context.Context, id uint64) error {
	return c.call(ctx, clusterService+"MemberRemove", idOnly(id), &ignoredAnswer{})
}

func idOnly(id uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), id)
}

func (c client) call(ctx context.Context, method string, request []byte, answer answer) error {
	return c.conn.Invoke(ctx, method, request, answer, grpc.ForceCodecV2(codec{}))
}

// answer is a message that is received.
type answer interface{ decode(data []byte) error }

type ignoredAnswer struct{}

func (*ignoredAnswer) decode([]byte) error { return nil }

// header is ResponseHeader.
type header struct{ cluster, member uint64 }

func (h *header) decode(data []byte) error {
	return decodeIDs(data, &h.cluster, &h.member)
}

// decodeIDs is a message whose first two fields are IDs.
func decodeIDs(data []byte, first, second *uint64) error {
	return fields(data, func(number protowire.Number, _ []byte, n uint64) error {
		switch number {
		case 1:
			*first = n
		case 2:
			*second = n
		}
		return nil
	})
}

// listAnswer is MemberListResponse.
type listAnswer struct {
	header  header
	members []Member
}

func (a *listAnswer) decode(data []byte) error {
	return fields(data, func(number protowire.Number, value []byte, _ uint64) error {
		switch number {
		case 1:
			return a.header.decode(value)
		case 2:
			m, err := decodeMember(value)
			a.members = append(a.members, m)
			return err
		}
		return nil
	})
}

// statusAnswer is StatusResponse.
type statusAnswer struct {
	header header
	leader uint64
}

func (a *statusAnswer) decode(data []byte) error {
	return fields(data, func(number protowire.Number, value []byte, n uint64) error {
		switch number {
		case 1:
			return a.header.decode(value)
		case 4:
			a.leader = n
		}
		return nil
	})
}

func decodeMember(data []byte) (m Member, err error) {
	err = fields(data, func(number protowire.Number, text []byte, n uint64) error {
		switch number {
		case 1:
			m.ID = n
		case 2:
			m.Name = string(text)
		case 3:
			if m.PeerURL == "" {
				m.PeerURL = string(text)
			}
		case 4:
			m.ClientURLs = append(m.ClientURLs, string(text))
		case 5:
			m.Learner = n != 0
		}
		return nil
	})
	return m, err
}

// fields walks through a message. A field is bytes or a number.
func fields(data []byte, each func(number protowire.Number, value []byte, n uint64) error) error {
	for len(data) > 0 {
		number, kind, size := protowire.ConsumeTag(data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		var value []byte
		var n uint64
		switch kind {
		case protowire.BytesType:
			value, size = protowire.ConsumeBytes(data)
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(data)
		default:
			size = protowire.ConsumeFieldValue(number, kind, data)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		if err := each(number, value, n); err != nil {
			return err
		}
	}
	return nil
}

// codec hands messages over as they are.
type codec struct{}

func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	data, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("a %T is no message", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(data)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(answer)
	if !ok {
		return fmt.Errorf("a %T takes no message", v)
	}
	return errors.Wrap(to.decode(data.Materialize()), "what an etcd member answers")
}
