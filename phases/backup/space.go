// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// Names of the checks for disk space: for the snapshot that an upgrade takes, and for the data that a rollback restores.
const (
	SnapshotCheck     = "EtcdSnapshotSpace"
	restoreSpaceCheck = "EtcdRestoreSpace"
)

// LogsRoom is for a run's other files: manifests, and the two log segments that an etcd allocates when it starts.
const LogsRoom = 128 << 20

// SnapshotSpace finds too little space for the snapshot of etcd, the images pulled before it, and a reserve.
func SnapshotSpace(env *step.Env, members []etcd.Health, images ...preflight.Need) []fault.Finding {
	i, _ := node.OwnMember(env, etcd.MembersOf(members))
	switch {
	case i < 0:
		return nil
	case !members[i].Answers:
		return []fault.Finding{fault.NewFinding(SnapshotCheck, fault.Unasked, "start etcd",
			"the space for a snapshot of etcd was not checked: etcd does not say how large its database is")}
	}
	need := preflight.Need{Dir: node.BackupRoot(env), What: "the snapshot of etcd", Bytes: uint64(members[i].Status.Size)}
	return inCheck(SnapshotCheck, preflight.Room(env.Host, need, images...), "old snapshots are in "+node.BackupRoot(env))
}

// inCheck sets the findings' check, and adds advice to their remedies.
func inCheck(name string, found []fault.Finding, advice string) []fault.Finding {
	for i := range found {
		found[i].Name = name
		found[i].Remedy += "; " + advice
	}
	return found
}

// MissingImagesNeed returns the disk space for pulling images, if any is missing. A runtime that can't say counts as having all:
// another check reports it.
func MissingImagesNeed(ctx context.Context, env *step.Env, images []string) []preflight.Need {
	missing, err := MissingImages(ctx, env, images)
	if err != nil || len(missing) == 0 {
		return nil
	}
	return preflight.ImageNeed(ctx, env.Settings(), env.Host)
}

// MissingImages returns the images that the container runtime lacks.
func MissingImages(ctx context.Context, env *step.Env, images []string) (missing []string, err error) {
	for _, image := range images {
		present, err := env.Host.ImagePresent(ctx, env.Config.CRISocket, image)
		if err != nil {
			return nil, err
		}
		if !present {
			missing = append(missing, image)
		}
	}
	return missing, nil
}

// ensureSnapshotSpace fails if a snapshot would fill the disk: pulled images, among others, have taken space since the checks.
func ensureSnapshotSpace(ctx context.Context, env *step.Env) error {
	members, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	return node.Check(ctx, env, preflight.Check{Name: SnapshotCheck, Run: func(context.Context, preflight.View) []fault.Finding {
		return SnapshotSpace(env, members)
	}})
}

// RestoreSpace checks the space for new data of etcd's beside the present.
func RestoreSpace(advice string, data preflight.Need, others ...preflight.Need) preflight.Check {
	data.What = "etcd's data"
	return preflight.Check{Name: restoreSpaceCheck, Description: "space for etcd's data beside the present one, and a tenth of the disk free", Run: func(_ context.Context, h preflight.View) []fault.Finding {
		return inCheck(restoreSpaceCheck, preflight.Room(h, data, others...), advice)
	}}
}
