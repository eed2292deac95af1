// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	kubeletUnit   = "kubelet.service"
	firewalldUnit = "firewalld.service"
)

// kubeletService checks that the unit can start, now and after a reboot. Without systemd, the kubelet may run in another way.
func kubeletService(ctx context.Context, h View, n *config.Node) []fault.Finding {
	unit, err := h.Unit(ctx, kubeletUnit)
	if errors.Is(err, host.ErrNoSystemd) {
		return warn("%v", err).remedy("start the kubelet in another way")
	}
	if err != nil {
		return warn("cannot ask systemd about %s: %v", kubeletUnit, err).remedy("check it with `systemctl status %s`", kubeletUnit)
	}
	switch {
	case unit.LoadState == "not-found":
		return fail("systemd has no unit %s", kubeletUnit).remedy("install the kubelet's package, or its unit and drop-in")
	case unit.LoadState == "masked":
		return fail("%s is masked, so it cannot be started", kubeletUnit).remedy("run `systemctl unmask %s`", kubeletUnit)
	case unit.LoadState != "loaded":
		return fail("systemd cannot load %s (%s)", kubeletUnit, unit.LoadState).remedy("see `systemctl status %s`", kubeletUnit)
	case unit.UnitFileState == "disabled" && !n.EnableKubelet:
		return warn("%s is not enabled, so the kubelet will not start after a reboot", kubeletUnit).
			remedy("run `systemctl enable %s`", kubeletUnit)
	}
	return nil
}

func firewalld(ctx context.Context, h View, n *config.Node) []fault.Finding {
	api, node := n.BindPort, kubeletPort(n)
	unit, err := h.Unit(ctx, firewalldUnit)
	if err != nil {
		return warn("cannot check whether a firewall blocks TCP ports %d and %d: %v", api, node, err).
			remedy("make sure that other nodes can reach these ports of this host")
	}
	const active = "%s is active, and other nodes must be able to reach TCP ports %d and %d of this host"
	switch {
	case unit.ActiveState == "active":
		return warn(active, "firewalld", api, node).
			remedy("open them with `firewall-cmd --permanent --add-port=%d/tcp --add-port=%d/tcp && firewall-cmd --reload`", api, node)
	case usesUFW(h):
		return warn(active, "ufw", api, node).remedy("open them with `ufw allow %d/tcp && ufw allow %d/tcp`", api, node)
	}
	return nil
}

// usesUFW reads what Ubuntu's firewall does at boot: its unit is active even where it's off.
func usesUFW(h View) bool {
	text, err := h.ReadFile("/etc/ufw/ufw.conf")
	return err == nil && slices.Contains(strings.Split(string(text), "\n"), "ENABLED=yes")
}
