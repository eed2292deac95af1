// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/phases/step"
)

// readFaster is how much faster than its pace a snapshot is read back: that hardly slows etcd down, unlike sending it and writing it.
const readFaster = 4

// Snapshot writes a snapshot of etcd's member at peerURL to a file at path, and reads it back to verify it.
func Snapshot(ctx context.Context, env *step.Env, peerURL, path string, pace etcd.Pace) (etcd.SnapshotInfo, error) {
	env.UI.Printf("Writing a snapshot of etcd to %s", path)
	err := env.Host.WriteStream(path, func(w io.Writer) error {
		_, err := env.Etcd.Snapshot(ctx, peerURL, pace.Writer(ctx, w))
		return err
	})
	if err != nil {
		return etcd.SnapshotInfo{}, err
	}
	info, err := verified(ctx, env, path, readFaster*pace)
	if errors.Is(err, host.ErrNotInPlan) {
		return info, nil
	}
	if err == nil {
		env.UI.Printf("The snapshot is whole: %d keys, revision %d, %d bytes", info.Keys, info.Revision, info.Size)
	}
	return info, err
}

// NewestFitting returns the newest snapshot that this minor version of etcd can restore for a member. list has the newest last.
func NewestFitting(env *step.Env, list []string, member, minor string) (string, etcd.SnapshotInfo, error) {
	var refused []string
	for _, path := range slices.Backward(list) {
		info, err := VerifiedSnapshot(env, path)
		if errors.Is(err, host.ErrNotInPlan) { // this run would take the snapshot
			return path, info, nil
		}
		if err == nil {
			err = fits(info, member, minor)
		}
		if err == nil {
			return path, info, nil
		}
		refused = append(refused, fmt.Sprintf("%s: %v", path, err))
	}
	return "", etcd.SnapshotInfo{}, errors.New("no snapshot of etcd fits: " + strings.Join(refused, "; "))
}

// VerifiedSnapshot reads and verifies the snapshot at path.
func VerifiedSnapshot(env *step.Env, path string) (etcd.SnapshotInfo, error) {
	return verified(context.Background(), env, path, 0)
}

func verified(ctx context.Context, env *step.Env, path string, pace etcd.Pace) (etcd.SnapshotInfo, error) {
	f, err := env.Host.Open(path)
	if err != nil {
		return etcd.SnapshotInfo{}, err
	}
	defer f.Close()
	return pace.VerifySnapshot(ctx, f)
}

// fits fails if a snapshot is of another member, or of a newer etcd.
func fits(info etcd.SnapshotInfo, member, minor string) error {
	if !slices.ContainsFunc(info.Members, func(m etcd.Member) bool { return m.Name == member }) {
		return errors.Errorf("it is of the members %s, and this node's member is %s", strings.Join(labelsOf(info.Members), ", "), member)
	}
	return StartsWith(info, minor)
}

// StartsWith fails if this minor version of etcd doesn't start with a snapshot's data, because a newer version has written it.
func StartsWith(info etcd.SnapshotInfo, minor string) error {
	if info.Version == "" || minor == "" {
		return nil // from before 3.6, or the image has a tag of its own
	}
	written := releases.MinorOf(info.Version)
	if written == "" {
		return errors.Errorf("invalid storage version %q", info.Version)
	}
	if releases.Less(minor, written) {
		return errors.Errorf("it is of etcd %s, and etcd %s does not start with it", written, minor)
	}
	return nil
}

// labelsOf returns the members' names, for messages. A member that hasn't started yet has its peer URL instead.
func labelsOf(members []etcd.Member) []string {
	var labels []string
	for _, m := range members {
		labels = append(labels, m.Label())
	}
	return labels
}
