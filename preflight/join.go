// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Leftover is a file that a host has only once it has joined a cluster, or has
// begun to.
type Leftover struct {
	Path string
	// Foreign tells why the file is not from an earlier join to this cluster;
	// nil if it is.
	Foreign func(data []byte) error
}

// JoinWorker lists what a host is asked before it joins a cluster as a worker.
func JoinWorker(n *config.Node, leftovers []Leftover) []Check {
	checks := []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser},
		{Name: "DirAvailable-" + dashed(n.Paths.Manifests), Run: noManifests(n)},
	}
	for _, l := range leftovers {
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(l.Path), Run: leftover(l)})
	}
	return slices.Concat(checks, proxies(n), node(n))
}

func leftover(l Leftover) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		data, err := h.ReadFile(l.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if errors.Is(err, fs.ErrPermission) {
			return fault("%s is there and cannot be read: run as root", l.Path)
		}
		if err == nil {
			err = l.Foreign(data)
		}
		if err != nil {
			return fault("%s is there, and not from an earlier join to this cluster (%v): run the reset command first, or move it away", l.Path, err)
		}
		return note("%s is in place", l.Path)
	}
}

// noManifests wants no static Pods, which the kubelet would start: they are
// what is left of a control plane. A node that has joined may have its own.
func noManifests(n *config.Node) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		dir := n.Paths.Manifests
		entries, err := h.ReadDir(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case exists(h, manifestPath(n, apiServer)):
			return fault("this host runs a control plane (%s): it is a node already; to make it a worker of a cluster, run the reset command first", manifestPath(n, apiServer))
		case err != nil:
			return fault("whether %s is empty cannot be told: %v", dir, err)
		case len(entries) > 0 && !joinBegun(n, h):
			return fault("%s is not empty, and the kubelet would start what is there: if it is what is left of a control plane, run the reset command; else move it away", dir)
		}
		return nil
	}
}
