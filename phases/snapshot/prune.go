// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Prune removes this Node's surplus snapshots from a directory. It first verifies the newest one, which always stays: if that's
// damaged, an older one may be the last that's whole, so none is removed.
func Prune(ctx context.Context, env *step.Env, dir string, policy snapshots.Policy) error {
	if policy.Newest < 1 {
		return errors.Errorf("at least one snapshot has to stay, not %d", policy.Newest)
	}
	if err := sweep(env, dir); err != nil {
		return err
	}
	list, unrecorded, err := snapshots.List(env.Host, dir)
	if err != nil {
		return err
	}
	for _, u := range unrecorded {
		env.UI.Warn(fmt.Sprintf("%v stays", u), "remove it yourself once you do not need it")
	}
	owner, known, err := ownerHere(ctx, env, list)
	if err != nil {
		return err
	}
	warnUndecided(env, snapshots.Undecided(list, owner))
	if !known {
		env.UI.Warn("no snapshot was removed, because "+dir+" has snapshots of several clusters, and without the API, this host can't tell which are its own", "run this again once the API answers")
		return nil
	}
	warnAhead(env, list, owner)
	if err := verifyNewest(env, list, owner); err != nil {
		return err
	}
	surplus := policy.Surplus(list, owner, env.Host.Now())
	if len(surplus) == 0 {
		env.UI.Printf("Nothing to remove: %s has %s", dir, count(len(list), "snapshot"))
	}
	for _, s := range surplus {
		env.UI.Printf("Removing %s", s.Path)
		if err := remove(env, s.Path); err != nil {
			return err
		}
	}
	return nil
}

// ownerHere is this Node in this cluster. Clusters may have the same CA, so while the API doesn't say which cluster it is, that's known
// only if the snapshots under this CA are of one.
func ownerHere(ctx context.Context, env *step.Env, list []snapshots.Snapshot) (owner snapshots.Owner, known bool, err error) {
	owner = snapshots.Owner{Node: env.Config.Name, ClusterUID: clusterUID(ctx, env)}
	owner.CA, err = OwnCA(env)
	clusters := map[string]bool{}
	own, _ := snapshots.OwnOf(list, owner, env.Host.Now())
	for _, s := range own {
		if s.ClusterUID != "" {
			clusters[s.ClusterUID] = true
		}
	}
	return owner, owner.ClusterUID != "" || len(clusters) <= 1, err
}

// OwnCA returns the hashes of the public keys of this host's cluster CA, as records have them: of several while it's being replaced.
// A host with etcd and no API server has none, nor do its records.
func OwnCA(env *step.Env) ([]string, error) {
	path := env.Config.Paths.StaticPod(manifests.APIServerName)
	manifest, err := host.ReadIfExists(env.Host, path)
	if err != nil || manifest == nil {
		return nil, err
	}
	pod, err := manifests.DecodePod(manifest)
	if err != nil {
		return nil, errors.WithMessage(err, path)
	}
	pins, err := pinsIn(env, pod, authorities[0].flag)
	if err == nil && len(pins) == 0 {
		err = fault.New(fmt.Sprintf("%s has no --%s, so it is not known which snapshots are this cluster's", path, authorities[0].flag),
			"remove old snapshots yourself")
	}
	return pins, err
}

func pathsOf(list []snapshots.Snapshot) string {
	var paths []string
	for _, s := range list {
		paths = append(paths, s.Path)
	}
	return strings.Join(paths, ", ")
}

// warnUndecided names snapshots that nobody knows the cluster of.
func warnUndecided(env *step.Env, undecided []snapshots.Snapshot) {
	if len(undecided) > 0 {
		env.UI.Warn("these snapshots stay, because they may be of another cluster with a host of the same name: "+pathsOf(undecided),
			"while the API does not answer, run this again later; otherwise remove them yourself if they are this cluster's")
	}
}

// warnAhead names snapshots whose age nobody knows.
func warnAhead(env *step.Env, list []snapshots.Snapshot, owner snapshots.Owner) {
	if _, ahead := snapshots.OwnOf(list, owner, env.Host.Now()); len(ahead) > 0 {
		env.UI.Warn("by their records, these snapshots are from the future, so this host's clock was ahead; they stay: "+pathsOf(ahead),
			"remove them and their records once you have newer ones")
	}
}

func verifyNewest(env *step.Env, list []snapshots.Snapshot, owner snapshots.Owner) error {
	newest, found := snapshots.Newest(list, owner, env.Host.Now())
	if !found {
		return nil
	}
	if _, err := Verify(env, newest.Path, nil); err != nil {
		return fault.New(fmt.Sprintf("no snapshot was removed, because the newest is not whole: %v", err),
			fmt.Sprintf("remove %s and %s, and take another with `slipway etcd snapshot save`", newest.Path, snapshots.RecordPath(newest.Path)))
	}
	return nil
}

// remove removes the record last: a snapshot without one would stay for ever.
func remove(env *step.Env, path string) error {
	if err := env.Host.Remove(path); err != nil {
		return err
	}
	return env.Host.Remove(snapshots.RecordPath(path))
}
