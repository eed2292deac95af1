// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// Reset lists the checks of a host before its node is removed.
func Reset(p config.Paths) []Check {
	return []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"},
		{Name: "FolderKind", Run: onlyDirs(p.Kubernetes, p.Manifests, p.PKI, p.Kubelet), Description: "everything that will be emptied is a directory or a link"},
	}
}

// onlyDirs checks, before anything is stopped, that everything to be emptied is a directory or a link.
func onlyDirs(paths ...string) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		var found []fault.Finding
		for _, path := range paths {
			info, err := h.Lstat(filepath.Clean(path))
			if err == nil && !info.IsDir() && info.Mode().Type() != fs.ModeSymlink {
				found = append(found, fail("%s is not a directory, so it does not belong to a node", path).remedy("move it away")...)
			}
		}
		return found
	}
}

// HostReset lists the checks of a host before its preparation is undone. sign returns a file that shows it's a node.
func HostReset(sign func(host.Reader) (string, error)) []Check {
	return []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"},
		{Name: "NoNode", Run: with(sign, noNode), Description: "this host is not a node, nor part of one"},
		{Name: "NoContainers", Run: noContainers, Description: "no running container in any containerd, in CRI-O or in Podman uses anything to be removed"},
	}
}

func noNode(_ context.Context, h View, find func(host.Reader) (string, error)) []fault.Finding {
	switch sign, err := find(h); {
	case errors.Is(err, fs.ErrPermission):
		return skip("only root can see that")
	case err != nil:
		return fail("cannot tell whether this host is a node: %v", err).remedy("make sure that root can read the file, and run the same command again")
	case sign != "":
		return fail("this host is a node, or part of one: %s exists", sign).remedy("run `slipway reset` first")
	}
	return nil
}

// Upgrade lists the checks of a node before its upgrade. more has the others: of the cluster, and of the files to write.
func Upgrade(n *config.Node, more []Check) []Check {
	checks := append(Rollback(), Patches(n))
	if n.ControlPlane {
		checks = append(checks, Check{Name: "StaticPodManifest", Run: with(n, hasManifests), Description: "the static Pods of this control plane exist"})
	}
	return append(checks, more...)
}

// Rollback lists the checks of a node before its upgrade is rolled back.
func Rollback() []Check {
	return []Check{{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"}}
}

func hasManifests(_ context.Context, h View, n *config.Node) []fault.Finding {
	components := []string{apiServer, controllerManager, scheduler}
	if n.Cluster.Etcd.External == nil {
		components = append(components, etcd)
	}
	var found []fault.Finding
	for _, c := range components {
		path := n.Paths.StaticPod(c)
		_, err := h.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			found = append(found, fail("%s does not exist, so this control plane does not run %s", path, c).
				remedy("put it back; `slipway upgrade` replaces a component, and does not add one")...)
		case err != nil:
			found = append(found, fail("%v", err).remedy("run this as root")...)
		}
	}
	return found
}
