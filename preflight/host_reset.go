// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"io/fs"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// HostReset lists the checks of a host before its preparation is undone. sign returns a file that shows it's a node.
func HostReset(sign func(host.Reader) (string, error)) []Check {
	return []Check{
		{Name: "IsPrivilegedUser", Run: privilegedUser, Asks: "runs as root"},
		{Name: "NoNode", Run: noNode(sign), Asks: "this host is no node, nor part of one"},
		{Name: "NoContainers", Run: noContainers, Asks: "no container runs that needs what is removed, in any containerd, in CRI-O or in Podman"},
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
