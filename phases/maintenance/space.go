// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// unknownSpaceError says why nobody knows how much space there is.
type unknownSpaceError struct{ error }

// hasRoom makes sure that a member's new database fits beside the old: etcd ends if it can't write its log. If that isn't
// known, the error is an unknownSpaceError.
func hasRoom(ctx context.Context, env *step.Env, all []etcd.Health, i int) error {
	m := all[i]
	if own, _ := node.OwnMember(env, etcd.MembersOf(all)); own != i {
		return hasRoomThere(ctx, env, m)
	}
	pod, err := env.Host.ReadFile(env.Config.Paths.StaticPod(manifests.EtcdName))
	if err != nil {
		return unknownSpaceError{err}
	}
	need := preflight.Need{Dir: node.EtcdDataDir(pod), What: "the new database", Bytes: uint64(m.Status.InUse)}
	findings := preflight.Room(env.Host, need)
	if len(findings) == 0 {
		return nil
	}
	failure := fault.New(findings[0].Message, findings[0].Remedy)
	if findings[0].Severity != fault.Error {
		return unknownSpaceError{failure}
	}
	return failure
}

const (
	// spaceTimeout bounds a question to another host's kubelet.
	spaceTimeout = 10 * time.Second
	// kept is the part of a file system that has to stay free: one in so many, as on this host.
	kept = 10
)

// hasRoomThere asks the kubelet of another member's host about the file system that it keeps Pods on. A member has the name of
// its Node.
func hasRoomThere(ctx context.Context, env *step.Env, m etcd.Health) error {
	ctx, cancel := context.WithTimeout(ctx, spaceTimeout)
	defer cancel()
	var summary struct {
		Node struct {
			FS struct {
				AvailableBytes, CapacityBytes uint64
			}
		}
	}
	q := cluster.Query{Path: cluster.KubeletPath(m.Name, "stats/summary")}
	err := cluster.ReadJSON(ctx, env.Cluster, q, cluster.LargestKubelet, &summary)
	fs := summary.Node.FS
	switch {
	case err != nil:
		return unknownSpaceError{err}
	case fs.CapacityBytes == 0:
		return unknownSpaceError{errors.Errorf("the kubelet on %s does not say", m.Name)}
	case fs.AvailableBytes < uint64(m.Status.InUse)+fs.CapacityBytes/kept:
		return fault.New(fmt.Sprintf("the file system of node %s has %s free; needed are %s for etcd's new database, and %s have to stay free",
			m.Name, size(int64(fs.AvailableBytes)), size(m.Status.InUse), size(int64(fs.CapacityBytes/kept))), "free some space there")
	}
	return nil
}
