// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// HostReset lists the checks of a host before its preparation is undone. sign returns a file by which it is a node.
func HostReset(sign func(host.Reader) (string, error)) []Check {
	return []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"},
		{Name: "NoNode", Run: noNode(sign), Asks: "this host is no node, nor part of one"},
		{Name: "NoContainers", Run: noContainers, Asks: "no container runs in containerd, from a bundle or not, that needs what is removed"},
	}
}

func noNode(find func(host.Reader) (string, error)) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		switch sign, err := find(h); {
		case errors.Is(err, fs.ErrPermission):
			return skip("only root can see that")
		case err != nil:
			return fail("cannot tell whether this host is a node: %v", err)
		case sign != "":
			return fail("this host is a node, or part of one: %s is there", sign).remedy("run `slipway reset` first")
		}
		return nil
	}
}

// taskDirs have a directory for each running container of containerd, below one for its namespace: those of containerd as a
// service, and of the one that Docker starts where there is no service.
var taskDirs = []string{"/run/containerd/io.containerd.runtime.v2.task", "/run/docker/containerd/daemon/io.containerd.runtime.v2.task"}

func noContainers(_ context.Context, h View) []Finding {
	tasks, err := runningTasks(h)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return skip("only root can see that")
	case err != nil:
		return fail("cannot list the running containers: %v", err)
	case len(tasks) > 0:
		return fail("containers run on this host: %s", strings.Join(tasks, ", ")).remedy("stop and remove them: `ctr --namespace NAMESPACE tasks ls` lists them. " +
			"Those of a container runtime that is not from a bundle may also run on, with --ignore-preflight-errors=NoContainers")
	}
	return nil
}

// runningTasks are the running containers, as NAMESPACE/ID.
func runningTasks(h View) ([]string, error) {
	var tasks []string
	for _, dir := range taskDirs {
		namespaces, err := h.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, n := range namespaces {
			ids, err := h.ReadDir(filepath.Join(dir, n.Name()))
			if err != nil {
				return nil, err
			}
			for _, id := range ids {
				tasks = append(tasks, n.Name()+"/"+id.Name())
			}
		}
	}
	return tasks, nil
}
