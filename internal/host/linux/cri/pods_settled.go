// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// settlePeriod is how long a runtime gets, after the kubelet's end, to list the Pods it was making. It's a few milliseconds of
	// work, which a disk that's slow to sync delays. A runtime that says which Pods it's making needs the time for containers
	// only.
	settlePeriod          = time.Second
	containerSettlePeriod = 250 * time.Millisecond
	// settleInterval is how often AwaitSettled asks.
	settleInterval = 50 * time.Millisecond
)

// AwaitSettled allows for a runtime's delay: the kubelet's end cancels its requests, but a runtime notices only between two
// steps.
//
// As seen with containerd 2.2: a Pod past the last such point will run, and CRI lists it only then, more than a second after the
// kubelet's end while the disk is busy. Any other is taken back, and never listed. containerd holds a lease, its protection from
// garbage collection, in each Pod's name from the first moment to the last, so a lease without a listed Pod is one of these.
// Nothing shows a container that's being created; if its Pod is removed meanwhile, it stays:
// https://github.com/containerd/containerd/blob/v2.2.0/internal/cri/server/sandbox_remove.go
func (r *Runtimes) AwaitSettled(ctx context.Context, socket string, since time.Time) error {
	return await(ctx, settleInterval, func(ctx context.Context) error { return r.settled(ctx, socket, since) })
}

// settled returns an error while the runtime may still be busy.
func (r *Runtimes) settled(ctx context.Context, socket string, since time.Time) error {
	unlisted, known, err := r.unlistedPods(ctx, socket)
	settle := settlePeriod
	if known {
		settle = containerSettlePeriod
	}
	switch {
	case err != nil:
		return err
	case len(unlisted) > 0:
		return errors.Errorf("it is still creating or removing Pods, although the kubelet has ended: %.12s", unlisted)
	case time.Since(since) < settle:
		return errors.New("it may still be working on the kubelet's last requests")
	}
	return nil
}

// unlistedPods returns the IDs of Pods that containerd has a lease for but doesn't list. known is false for another runtime.
func (r *Runtimes) unlistedPods(ctx context.Context, socket string) (ids []string, known bool, err error) {
	err = r.ask(ctx, socket, "list the leases and Pods", func(ctx context.Context, c client) error {
		leases, err := podLeases(ctx, c.conn) // first: a Pod made after this is listed
		if status.Code(err) == codes.Unimplemented {
			return nil
		}
		if err != nil {
			return err
		}
		answer, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		ids, known = slices.DeleteFunc(leases, func(id string) bool {
			return slices.ContainsFunc(answer.GetItems(), func(p *cri.PodSandbox) bool { return p.GetId() == id })
		}), true
		return err
	})
	return ids, known, err
}

// podLeases asks containerd for its leases, by its own API on the same socket, and returns the Pods' leases, which are named
// after the Pod. That API's generated stubs would bring two more logging and RPC libraries into the program, for the first field
// of one message: https://github.com/containerd/containerd/blob/api/v1.10.0/api/services/leases/v1/leases.proto
func podLeases(ctx context.Context, conn *grpc.ClientConn) ([]string, error) {
	const method, leasesField, idField = "/containerd.services.leases.v1.Leases/List", 1, 1
	var answer emptypb.Empty // takes any message
	err := conn.Invoke(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io"), method, &emptypb.Empty{}, &answer)
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, lease := range bytesFields(answer.ProtoReflect().GetUnknown(), leasesField) {
		for _, id := range bytesFields(lease, idField) {
			if isPodID(string(id)) {
				ids = append(ids, string(id))
			}
		}
	}
	return ids, nil
}

// isPodID recognizes containerd's IDs of Pods: 32 bytes in hexadecimal. Temporary leases have other names.
func isPodID(name string) bool {
	const digits = 64
	return len(name) == digits && !slices.ContainsFunc([]byte(name), func(c byte) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
}

// bytesFields returns a message's values of a field of strings or messages.
func bytesFields(message []byte, field protowire.Number) [][]byte {
	var values [][]byte
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return values
		}
		message = message[n:]
		n = protowire.ConsumeFieldValue(number, kind, message)
		if n < 0 {
			return values
		}
		if number == field && kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			values = append(values, value)
		}
		message = message[n:]
	}
	return values
}
