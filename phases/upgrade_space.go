// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/preflight"
)

const restoreSpaceCheck = "EtcdRestoreSpace"

// logsRoom is for what else a run writes: manifests, and the two segments of its log that an etcd allocates when it starts.
const logsRoom = 128 << 20

// snapshotSpace finds too little space for the snapshot of etcd, for the images that are pulled before it, and for a reserve.
func snapshotSpace(env *Env, members []etcd.Health, images ...preflight.Need) []preflight.Finding {
	local, found := etcdmember.Local(env.Host, env.Config)
	i := slices.IndexFunc(members, func(m etcd.Health) bool { return m.PeerURL == local.PeerURL })
	switch {
	case !found || i < 0:
		return nil
	case !members[i].Answers:
		return []preflight.Finding{finding(snapshotCheck, preflight.Unasked, "start etcd",
			"the space for a snapshot of etcd was not checked: etcd does not say how large its database is")}
	}
	need := preflight.Need{Dir: backupRoot(env), What: "the snapshot of etcd", Bytes: uint64(members[i].Status.Size)}
	return inCheck(snapshotCheck, preflight.Room(env.Host, need, images...), "old snapshots are in "+backupRoot(env))
}

// inCheck gives findings their check, and adds to their remedies.
func inCheck(name string, found []preflight.Finding, advice string) []preflight.Finding {
	for i := range found {
		found[i].Check = name
		found[i].Remedy += "; " + advice
	}
	return found
}

// missingImagesNeed is the space for images, if some have to be pulled.
func missingImagesNeed(ctx context.Context, env *Env, images []string) []preflight.Need {
	missing, err := missingImages(ctx, env, images)
	if err != nil || len(missing) == 0 {
		return nil
	}
	return preflight.ImageNeed(ctx, env.Config, env.Host)
}

// missingImages are the images that the container runtime does not have.
func missingImages(ctx context.Context, env *Env, images []string) (missing []string, err error) {
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

// ensureSnapshotSpace fails if a snapshot would fill the disk: the images that were pulled meanwhile, and others, need space.
func ensureSnapshotSpace(ctx context.Context, env *Env) error {
	members, err := etcd.AskHealth(ctx, env.Etcd)
	if err != nil {
		return err
	}
	return ensureSpace(ctx, env, preflight.Question{Name: snapshotCheck, Ask: func(context.Context) []preflight.Finding {
		return snapshotSpace(env, members)
	}})
}

func ensureSpace(ctx context.Context, env *Env, question preflight.Question) error {
	return show(env, preflight.Run(ctx, preflight.Questions([]preflight.Question{question}), env.Host, env.Config.IgnorePreflightErrors))
}

// spaceQuestion is the check that there is space for the data that is made from the snapshot, beside the present data. Once etcd
// may have been stopped, the restore has to go on.
func (o *restore) spaceQuestion(env *Env, images ...preflight.Need) preflight.Question {
	need := preflight.Need{Dir: filepath.Dir(o.fresh), What: "etcd's data", Bytes: uint64(o.info.Size) + logsRoom}
	return preflight.Question{Name: restoreSpaceCheck, Asks: "space for etcd's data beside the present one, and a tenth of the disk free", Ask: func(context.Context) []preflight.Finding {
		if o.begun {
			return nil
		}
		return inCheck(restoreSpaceCheck, preflight.Room(env.Host, need, images...), "old snapshots are in "+backupRoot(env))
	}}
}
