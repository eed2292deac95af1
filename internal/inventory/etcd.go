// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/manifests"
)

// external marks a member that an upgrade leaves alone; Check fills in the target of the others.
const (
	external = ""
	local    = "local"
)

// members asks etcd which versions run. Where nobody can ask it, the images of its Pods say so, without its health.
func (c *collector) members(ctx context.Context) {
	target := local
	if c.desired.Cluster.Etcd.External != nil {
		target = external
	}
	const remedy = "run `slipway upgrade plan` as root on a control plane, whose certificates etcd accepts"
	if c.Etcd != nil {
		health, err := c.Etcd.Health(ctx)
		for _, m := range health {
			where := "etcd member " + cmp.Or(m.Name, m.PeerURL)
			if !m.Answers {
				continue // the check of its health reports it
			}
			c.inputs.Etcd = append(c.inputs.Etcd, breakages.EtcdMember{Where: where, Version: m.Status.Version, Target: target})
		}
		c.Members = health
		if err == nil {
			return
		}
		c.gap("etcd", "health", "check etcd: `slipway diagnose` on its nodes says what is wrong", "etcd was not checked: %v", err)
	} else {
		c.gap("etcd", "health", remedy, "the health of etcd was not checked, because this host has no certificate for it")
	}
	for _, component := range c.State.Components {
		if component.Name == manifests.EtcdName {
			v, _, _ := strings.Cut(component.Version, "-") // of the image, from that of etcd
			c.inputs.Etcd = append(c.inputs.Etcd, breakages.EtcdMember{Where: "etcd on " + component.Node, Version: v, Target: target})
		}
	}
}
