// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Reset lists the checks of a host before its node is removed.
func Reset(n *config.Node) []Check {
	return []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"},
		{Name: "FolderKind", Run: onlyDirs(n.Paths.Kubernetes, n.Paths.Manifests, n.Paths.PKI, n.Paths.Kubelet), Asks: "everything that will be emptied is a directory or a link"},
	}
}

// onlyDirs checks, before anything is stopped, that everything to be emptied is a directory or a link.
func onlyDirs(paths ...string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		var found []Finding
		for _, path := range paths {
			info, err := h.Lstat(filepath.Clean(path))
			if err == nil && !info.IsDir() && info.Mode().Type() != fs.ModeSymlink {
				found = append(found, fail("%s is not a directory, so it does not belong to a node", path).remedy("move it away")...)
			}
		}
		return found
	}
}
