// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Reset lists what a host is asked before it is emptied.
func Reset(n *config.Node) []Check {
	return []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"},
		{Name: "FolderKind", Run: foldersAreFolders(n.Paths.Kubernetes, n.Paths.Manifests, n.Paths.PKI, n.Paths.Kubelet), Asks: "what will be emptied is a directory, or a link"},
	}
}

// foldersAreFolders wants what is about to be emptied to be folders or links,
// before anything is stopped.
func foldersAreFolders(paths ...string) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		var found []Finding
		for _, path := range paths {
			info, err := h.Lstat(filepath.Clean(path))
			if err == nil && !info.IsDir() && info.Mode().Type() != fs.ModeSymlink {
				found = append(found, fault("%s is no folder, so it is not a node's: move it away", path)...)
			}
		}
		return found
	}
}
