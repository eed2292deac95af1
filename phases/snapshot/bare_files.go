// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// writeFiles writes the snapshot's files that all control planes share, and that this host lacks. Anyone can encrypt a snapshot to a
// public key, so its files don't go just anywhere.
func (b *BareHost) writeFiles(env *step.Env) error {
	named, err := namedFiles(env)
	if err != nil {
		return err
	}
	own := &collection{env: env, ofHost: map[string]bool{}}
	own.markOfHost()
	for _, f := range b.files {
		switch {
		case f.OfHost || own.ofHost[f.Path]: // init makes this host's own
		case !slices.Contains(named, f.Path) && !isShared(env, f.Path):
			env.UI.Warn(fmt.Sprintf("%s is in the snapshot, but not written: it is not below %s, and this host's configuration does not name it", f.Path, env.Config.Paths.Kubernetes),
				"if it is needed, take it from the snapshot with age and tar")
		default:
			if err := b.writeMissing(env, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// isShared reports whether a path is in a directory of the cluster's own files.
func isShared(env *step.Env, path string) bool {
	paths := env.Config.Paths
	within := func(dir string) bool { return strings.HasPrefix(path, dir+"/") }
	return (within(paths.Kubernetes) || within(paths.PKI)) && !within(filepath.Dir(node.EtcdJournalPath(env.Config.Paths)))
}

// namedFiles returns the paths on this host that its control plane's flags and volumes name.
func namedFiles(env *step.Env) (paths []string, err error) {
	view, err := node.HostView(env)
	if err != nil {
		return nil, err
	}
	for _, component := range manifests.Components(env.Config) {
		data, err := node.StaticPodYAML(env, component, view, nil)
		if err != nil {
			return nil, err
		}
		pod, err := manifests.DecodePod(data)
		if err != nil {
			return nil, err
		}
		for _, f := range manifests.PodFlags(pod) {
			if path, found := thisnode.OnHost(pod, f.Value); found && filepath.IsAbs(f.Value) && !slices.Contains(outputs, f.Name) {
				paths = append(paths, path)
			}
		}
		for _, v := range pod.Spec.Volumes {
			if v.HostPath != nil {
				paths = append(paths, v.HostPath.Path)
			}
		}
	}
	return paths, nil
}

// writeMissing writes a file for root, and one with a key for nobody else.
func (b *BareHost) writeMissing(env *step.Env, f snapshots.File) error {
	have, err := host.ReadIfExists(env.Host, f.Path)
	switch {
	case err != nil:
		return err
	case have != nil && string(have) == string(f.Data):
		return nil
	case have != nil:
		return fault.New(fmt.Sprintf("%s is not the one in %s", f.Path, b.File), "move it away, or use a snapshot that was taken without --with-pki")
	}
	env.UI.Printf("Writing %s", f.Path)
	if f.Owner != (host.Owner{}) {
		env.UI.Warn(fmt.Sprintf("%s belonged to the user %d and the group %d; now it belongs to root", f.Path, f.Owner.UID, f.Owner.GID), "")
	}
	if err := env.Host.EnsureDir(filepath.Dir(f.Path), 0o755); err != nil {
		return err
	}
	if filepath.Ext(f.Path) == ".key" || host.LooksSecret(f.Data) || f.Mode == fs.FileMode(0o600) {
		_, err = env.Host.WriteSecret(f.Path, f.Data)
		return err
	}
	_, err = env.Host.WriteFile(f.Path, f.Data, f.Mode&0o755|0o600)
	return err
}
