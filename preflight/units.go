// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	kubeletUnit   = "kubelet.service"
	firewalldUnit = "firewalld.service"
)

// kubeletService wants a unit that can be started and that comes back at boot.
// A host without systemd may run the kubelet in another way.
func kubeletService(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		unit, err := h.Unit(ctx, kubeletUnit)
		if errors.Is(err, host.ErrNoSystemd) {
			return warn("%v: start the kubelet another way", err)
		}
		if err != nil {
			return warn("systemd cannot be asked about %s: %v", kubeletUnit, err)
		}
		switch {
		case unit.LoadState == "not-found":
			return fault("systemd knows no %s: install the kubelet's package, or its unit and drop-in", kubeletUnit)
		case unit.LoadState == "masked":
			return fault("%s is masked and cannot be started: run `systemctl unmask %s`", kubeletUnit, kubeletUnit)
		case unit.LoadState != "loaded":
			return fault("systemd could not load %s (%s): see `systemctl status %s`", kubeletUnit, unit.LoadState, kubeletUnit)
		case unit.UnitFileState == "disabled" && !n.EnableKubelet:
			return warn("%s is not enabled, so the node will not come back after a boot: run `systemctl enable %s`", kubeletUnit, kubeletUnit)
		}
		return nil
	}
}

func firewalld(n *config.Node) func(context.Context, View) []Finding {
	return func(ctx context.Context, h View) []Finding {
		unit, err := h.Unit(ctx, firewalldUnit)
		if err != nil {
			return warn("systemd cannot be asked about %s: %v", firewalldUnit, err)
		}
		if unit.ActiveState != "active" {
			return nil
		}
		api, node := n.BindPort, kubeletPort(n)
		return warn("firewalld is active: other nodes must reach TCP ports %d and %d here; open them with `firewall-cmd --permanent --add-port=%d/tcp --add-port=%d/tcp && firewall-cmd --reload`",
			api, node, api, node)
	}
}
