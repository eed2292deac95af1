// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// existingDir returns path, or the nearest existing directory above it: where path will be created.
func existingDir(h View, path string) string {
	for {
		info, err := h.Stat(path)
		if above := filepath.Dir(path); err == nil && info.IsDir() || above == path {
			return path
		}
		path = filepath.Dir(path)
	}
}

// content lists a directory without lost+found.
func content(h View, dir string) ([]fs.DirEntry, error) {
	entries, err := h.ReadDir(dir)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == host.LostAndFound }), err
}

// writtenDirs lists the directories a run writes to, but not the directory of static Pods, where a running kubelet would take the
// probe for a Pod.
func writtenDirs(n *config.Node) []string {
	dirs := []string{n.Paths.Kubernetes, n.Paths.Kubeconfigs, n.Paths.PKI, n.Paths.Kubelet}
	if n.Join != nil {
		dirs = append(dirs, filepath.Dir(n.Join.CAPath))
	}
	if n.ControlPlane && n.Cluster.Etcd.Local != nil {
		dirs = append(dirs, n.Cluster.Etcd.Local.DataDir)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// writable creates a file in each directory a run will write to, or in the nearest existing directory above it: permissions don't
// show read-only mounts, quotas or failing disks.
func writable(_ context.Context, h View, n *config.Node) []fault.Finding {
	if h.EffectiveUID() != 0 {
		return skip("writing to these directories needs root; see IsPrivilegedUser")
	}
	var tried []string
	var found []fault.Finding
	for _, dir := range writtenDirs(n) {
		dir = existingDir(h, dir)
		if slices.Contains(tried, dir) {
			continue
		}
		tried = append(tried, dir)
		err := h.ProbeWrite(dir)
		switch {
		case errors.Is(err, host.ErrNotInPlan):
			return unasked("whether directories can be written to")
		case err != nil:
			found = append(found, fail("%v", err).
				remedy("make sure that %s is a directory on a file system that is mounted writable and has free space", dir)...)
		}
	}
	return found
}
