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
	// nil if it is. There is no such function where the cluster is not known.
	Foreign func(data []byte) error
}

// JoinWorker lists what a host is asked before it joins a cluster as a worker.
func JoinWorker(n *config.Node, leftovers []Leftover) []Check {
	checks := []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"},
		{Name: "DirAvailable-" + dashed(n.Paths.Manifests), Run: noManifests(n), Asks: "no static Pods, unless this is a node of the cluster already"},
	}
	return slices.Concat(checks, joining(n, leftovers))
}

// joining lists what every joining node is asked, whatever its role.
func joining(n *config.Node, leftovers []Leftover) []Check {
	checks := []Check{{Name: "ClockSkew", Run: clock(n), Asks: "this host's clock is at most 3 s from the API server's (warning), and not so far that certificates would not be valid yet, 5 minutes (error)"}}
	for _, l := range leftovers {
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(l.Path), Run: leftover(l), Asks: "absent, or from an earlier join to this cluster"})
	}
	return slices.Concat(checks, proxies(n), node(n), networks(n))
}

// JoinControlPlane lists what a host is asked before it joins a cluster as a
// control plane: what a worker is asked, and what only a control plane needs.
// Files of an external etcd are not asked for: the join fetches them.
func JoinControlPlane(n *config.Node, leftovers []Leftover) []Check {
	components := []string{apiServer, controllerManager, scheduler}
	checks := append([]Check{{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"}}, controlPlane(n)...)
	if n.Cluster.Etcd.External == nil {
		components = append(components, etcd)
		checks = append(checks, localEtcd(n)...)
	}
	for _, c := range components {
		path := manifestPath(n, c)
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(path), Run: joinedPod(path, c, leftovers), Asks: "the manifest is absent, or from an earlier join to this cluster"})
	}
	return slices.Concat(checks, joining(n, leftovers))
}

// joinedPod wants path to be free, or to hold a static Pod of component on a
// host that has begun to join this cluster. Whether it is as the configuration
// says now is for the phase that writes it.
func joinedPod(path, component string, leftovers []Leftover) func(context.Context, View) []Finding {
	return whereThere(path, func(h View, have []byte) []Finding {
		if _, err := containerOf(component, have); err != nil {
			return fault("%s is there, and is not a static Pod of %s: move it away", path, component)
		}
		if !slices.ContainsFunc(leftovers, func(l Leftover) bool { return l.ours(h) }) {
			return fault("%s is there, and not from an earlier join to this cluster: run `slipway reset` first, or move it away", path)
		}
		return note("%s is in place", path)
	})
}

// ours tells that the file is there, and from an earlier join to this cluster.
func (l Leftover) ours(h View) bool {
	data, err := h.ReadFile(l.Path)
	return err == nil && (l.Foreign == nil || l.Foreign(data) == nil)
}

func leftover(l Leftover) func(context.Context, View) []Finding {
	return whereThere(l.Path, func(_ View, data []byte) []Finding {
		if l.Foreign == nil {
			return skip("%s is there; whether from an earlier join to the cluster is known only once that was asked", l.Path)
		}
		if err := l.Foreign(data); err != nil {
			return fault("%s is there, and not from an earlier join to this cluster (%v): run `slipway reset` first, or move it away", l.Path, err)
		}
		return note("%s is in place", l.Path)
	})
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
			return fault("this host runs a control plane (%s): it is a node already; to make it a worker of a cluster, run `slipway reset` first", manifestPath(n, apiServer))
		case err != nil:
			return fault("whether %s is empty cannot be told: %v", dir, err)
		case len(entries) > 0 && !joinBegun(n, h):
			return fault("%s is not empty, and the kubelet would start what is there: if it is what is left of a control plane, run `slipway reset`; else move it away", dir)
		}
		return nil
	}
}
