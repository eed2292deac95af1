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

// Question is a check of something outside this host, or of what this run would write.
type Question struct {
	Name, Asks string
	Ask        func(context.Context) []fault.Finding
}

func Questions(questions []Question) []Check {
	var checks []Check
	for _, q := range questions {
		checks = append(checks, Check{Name: q.Name, Asks: q.Asks, Run: func(ctx context.Context, _ View) []fault.Finding { return q.Ask(ctx) }})
	}
	return checks
}

// Upgrade lists the checks of a node before its upgrade.
func Upgrade(n *config.Node, questions []Question) []Check {
	checks := Rollback()
	if n.ControlPlane {
		checks = append(checks, Check{Name: "StaticPodManifest", Run: hasManifests(n), Asks: "the static Pods of this control plane are there"})
	}
	return append(checks, Questions(questions)...)
}

// Rollback lists the checks of a node before its upgrade is rolled back.
func Rollback() []Check {
	return []Check{{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"}}
}

func hasManifests(n *config.Node) func(context.Context, View) []fault.Finding {
	components := []string{apiServer, controllerManager, scheduler}
	if n.Cluster.Etcd.External == nil {
		components = append(components, etcd)
	}
	return func(_ context.Context, h View) []fault.Finding {
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
}
