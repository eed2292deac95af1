// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"context"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

// LoadProfile is Load for the settings of a hardening profile on top of the documents in src, which may be nil. A setting that the
// cluster or src has stays, and a warning names it.
func LoadProfile(ctx context.Context, api cluster.Cluster, name string, src *config.Source, self *config.JoinConfiguration, opts config.Options) (*Change, []string, error) {
	users, warnings := map[string]config.Part{}, []string(nil)
	if src != nil {
		var err error
		if users, warnings, err = config.LoadParts(src); err != nil {
			return nil, warnings, err
		}
	}
	c, more, err := loadProfile(ctx, api, name, users, self, opts)
	if warnings = append(warnings, more...); err != nil {
		return nil, warnings, err
	}
	return c, warnings, refused(c.Node.Upgrade.Before, c.Node, c.Fields, users)
}

func loadProfile(ctx context.Context, api cluster.Cluster, name string, users map[string]config.Part, self *config.JoinConfiguration, opts config.Options) (*Change, []string, error) {
	parts := map[string]config.Part{config.ClusterSource: {Fields: map[string]any{}}, config.KubeletSource: {Fields: map[string]any{}}}
	maps.Copy(parts, users)
	c, present, merged, err := mergeStored(ctx, api, parts, self, opts)
	if err != nil {
		return nil, nil, err
	}
	hardened, warnings, err := config.ProfileParts(name, merged[config.ClusterSource], merged[config.KubeletSource], users)
	if err != nil {
		return nil, nil, err
	}
	if err := merged.patch(hardened); err != nil {
		return nil, nil, err
	}
	c, more, err := c.complete(present, merged, parts, self, opts)
	return c, slices.Concat(warnings, more), err
}
