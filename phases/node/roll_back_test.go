// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
)

// TestInGroups: a node whose second group of components went back runs two versions, unlike one whose first group did.
func TestInGroups(t *testing.T) {
	for failing, partly := range map[string]bool{manifests.EtcdName: false, manifests.SchedulerName: true} {
		components := []node.Replacement{{Name: manifests.EtcdName}, {Name: manifests.APIServerName}, {Name: manifests.SchedulerName}}
		err := node.InGroups(components, func(group []node.Replacement) error {
			if node.HasComponent(group, failing) {
				return node.NewRolledBackError(errors.New("it did not come up"))
			}
			return nil
		})
		if back := (*node.RolledBackError)(nil); !errors.As(err, &back) || back.Partly != partly {
			t.Errorf("%s fails, so the node runs two versions: %t; %v", failing, !partly, err)
		}
	}
}
