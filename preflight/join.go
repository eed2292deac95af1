// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

// Leftover is a file that exists only on a host that has joined a cluster, or begun to.
type Leftover struct {
	Path string
	// Foreign says why the file isn't from an earlier join to this cluster; nil if it is. The function is nil without a known cluster.
	Foreign func(data []byte) error
}

// JoinWorker lists the checks of a host that joins a cluster as a worker.
func JoinWorker(n *config.Node, leftovers []Leftover) []Check {
	checks := []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"},
		{Name: "DirAvailable-" + dashed(n.Paths.Manifests), Run: with(n, noManifests), Description: "there are no static Pods, unless this already is a node of the cluster"},
	}
	return slices.Concat(checks, joining(n, leftovers))
}

// joining lists the checks of every node that joins, whatever its role.
func joining(n *config.Node, leftovers []Leftover) []Check {
	checks := []Check{{Name: "ClockSkew", Run: with(n, clock), Description: "this host's clock differs from the API server's by at most 3 s (warning), and by at most the 5 minutes by which certificates are backdated (error)"}}
	for _, l := range leftovers {
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(l.Path), Run: leftover(l), Description: "the file does not exist, or is from an earlier join to this cluster"})
	}
	return slices.Concat(checks, proxies(n), node(n), networks(n))
}

// JoinControlPlane lists the checks of a joining control plane. An external etcd's files aren't checked: the join fetches them.
func JoinControlPlane(n *config.Node, leftovers []Leftover) []Check {
	components := []string{apiServer, controllerManager, scheduler}
	checks := append([]Check{{Name: "IsPrivilegedUser", Run: privilegedUser, Description: "runs as root"}}, controlPlane(n)...)
	if n.Cluster.Etcd.External == nil {
		components = append(components, etcd)
		checks = append(checks, localEtcd(n)...)
	}
	for _, c := range components {
		path := n.Paths.StaticPod(c)
		checks = append(checks, Check{Name: "FileAvailable-" + dashed(path), Run: joinedPod(path, c, leftovers), Description: "the manifest does not exist, or is from an earlier join to this cluster"})
	}
	return slices.Concat(checks, joining(n, leftovers))
}

// joinedPod checks that path doesn't exist, or is component's static Pod on a host that has begun to join this cluster. The phase
// that writes it checks whether it matches the configuration.
func joinedPod(path, component string, leftovers []Leftover) func(context.Context, View) []fault.Finding {
	return ifPresent(path, func(h View, have []byte) []fault.Finding {
		if _, err := containerOf(component, have); err != nil {
			return notStaticPod(path, component)
		}
		if !slices.ContainsFunc(leftovers, func(l Leftover) bool { return l.ours(h) }) {
			return fail("%s exists, and is not from an earlier join to this cluster", path).remedy(resetOrMove)
		}
		return note("%s is in place", path)
	})
}

const resetOrMove = "run `slipway reset` first, or move the file away"

// ours reports whether the file exists and is from an earlier join to this cluster, as far as the cluster is known.
func (l Leftover) ours(h View) bool {
	data, err := h.ReadFile(l.Path)
	return err == nil && (l.Foreign == nil || l.Foreign(data) == nil)
}

func leftover(l Leftover) func(context.Context, View) []fault.Finding {
	return ifPresent(l.Path, func(_ View, data []byte) []fault.Finding {
		if l.Foreign == nil {
			return skip("%s exists; only the cluster can say whether it is from an earlier join", l.Path)
		}
		if err := l.Foreign(data); err != nil {
			return fail("%s exists, and is not from an earlier join to this cluster: %v", l.Path, err).remedy(resetOrMove)
		}
		return note("%s is in place", l.Path)
	})
}

// noManifests finds static Pods left from a control plane, which the kubelet would start. A joined node may have its own.
func noManifests(_ context.Context, h View, n *config.Node) []fault.Finding {
	dir := n.Paths.Manifests
	entries, err := content(h, dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case exists(h, n.Paths.StaticPod(apiServer)):
		return fail("this host already runs a control plane (%s)", n.Paths.StaticPod(apiServer)).
			remedy("to make it a worker of a cluster, run `slipway reset` first")
	case err != nil:
		return notListed(dir, err)
	case len(entries) > 0 && !joinBegun(n, h):
		return fail("%s is not empty, and the kubelet would start the static Pods in it", dir).
			remedy("if the files are left from a control plane, run `slipway reset`; otherwise move them away")
	}
	return nil
}
