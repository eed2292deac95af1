// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// folderOf is path, or the nearest folder above it that exists: where path will
// be made.
func folderOf(h View, path string) string {
	for {
		info, err := h.Stat(path)
		if above := filepath.Dir(path); err == nil && info.IsDir() || above == path {
			return path
		}
		path = filepath.Dir(path)
	}
}

// ownFolders are those that a run writes to, but for the folder of static Pods:
// a kubelet that runs would take the probe for a Pod.
func ownFolders(n *config.Node) []string {
	dirs := []string{n.Paths.Kubernetes, n.Paths.Kubeconfigs, n.Paths.PKI, n.Paths.Kubelet}
	if n.Join != nil {
		dirs = append(dirs, filepath.Dir(n.Join.CAPath))
	}
	if n.ControlPlane && n.Cluster.Etcd.Local != nil {
		dirs = append(dirs, n.Cluster.Etcd.Local.DataDir)
	}
	return slices.DeleteFunc(dirs, func(dir string) bool { return !filepath.IsAbs(dir) })
}

// writable makes a file in each folder that a run will write to, or in the one
// above that exists: permissions do not tell of read-only mounts, of quotas, or
// of disks that fail.
func writable(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		if h.EffectiveUID() != 0 {
			return skip("folders are written to as root only: see IsPrivilegedUser")
		}
		var tried []string
		var found []Finding
		for _, dir := range ownFolders(n) {
			dir = folderOf(h, dir)
			if slices.Contains(tried, dir) {
				continue
			}
			tried = append(tried, dir)
			err := h.ProbeWrite(dir)
			switch {
			case errors.Is(err, host.ErrNotInPlan):
				return unasked("whether directories can be written to")
			case err != nil:
				found = append(found, fault("%v", err)...)
			}
		}
		return found
	}
}
