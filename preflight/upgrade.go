// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// Upgrade lists the checks of a node before its upgrade. more has those of the cluster, and of the files to write.
func Upgrade(n *config.Node, more []Check) []Check {
	checks := Rollback()
	if n.ControlPlane {
		checks = append(checks, Check{Name: "StaticPodManifest", Run: with(n, hasManifests), Asks: "the static Pods of this control plane exist"})
	}
	return append(checks, more...)
}

// Rollback lists the checks of a node before its upgrade is rolled back.
func Rollback() []Check {
	return []Check{{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"}}
}

func hasManifests(_ context.Context, h View, n *config.Node) []fault.Finding {
	components := []string{apiServer, controllerManager, scheduler}
	if n.Cluster.Etcd.External == nil {
		components = append(components, etcd)
	}
	var found []fault.Finding
	for _, c := range components {
		path := manifestPath(n, c)
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
