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

// members asks etcd for its members' versions, or takes them from its Pods' images, but without health.
func (c *collector) members(ctx context.Context) {
	external := c.desired.Cluster.Etcd.External != nil
	if c.Etcd == nil {
		c.gap("etcd", "health", "run `slipway upgrade plan` as root on a control plane, whose certificates etcd accepts",
			"the health of etcd was not checked, because this host has no certificate for it")
	} else {
		c.askMembers(ctx, external)
	}
	if len(c.inputs.Etcd) > 0 || external {
		return
	}
	for _, component := range c.State.Components {
		if component.Name == manifests.EtcdName {
			v, _, _ := strings.Cut(component.Version, "-") // etcd's version, then the image's
			c.inputs.Etcd = append(c.inputs.Etcd, breakages.EtcdMember{Where: "etcd on " + component.Node, Version: v})
		}
	}
}

// askMembers asks each member. The health check reports members that don't answer.
func (c *collector) askMembers(ctx context.Context, external bool) {
	var err error
	if c.Members, err = c.Etcd.Health(ctx); err != nil {
		c.gap("etcd", "health", "check etcd: `slipway diagnose` on its nodes says what is wrong", "etcd was not checked: %v", err)
	}
	for _, m := range c.Members {
		if m.Answers {
			where := "etcd member " + cmp.Or(m.Name, m.PeerURL)
			c.inputs.Etcd = append(c.inputs.Etcd, breakages.EtcdMember{Where: where, Version: m.Status.Version, External: external})
		}
	}
}
