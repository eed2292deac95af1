// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"context"
	"maps"
	"slices"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Profile is Load for the settings of a hardening profile on top of the documents in src, which may be nil. A setting that the
// cluster or src has stays, and a warning names it.
func (l Loader) Profile(ctx context.Context, name string, src *config.Source) (*Change, []string, error) {
	users, warnings := map[string]config.Part{}, []string(nil)
	if src != nil {
		var err error
		if users, warnings, err = config.LoadParts(src); err != nil {
			return nil, warnings, err
		}
	}
	c, more, err := l.profile(ctx, name, users)
	if warnings = append(warnings, more...); err != nil {
		return nil, warnings, err
	}
	return c, warnings, refused(c.Node.Upgrade.Before, c.Node, c.Fields, users)
}

func (l Loader) profile(ctx context.Context, name string, users map[string]config.Part) (*Change, []string, error) {
	parts := map[string]config.Part{config.ClusterSource: {Fields: map[string]any{}}, config.KubeletSource: {Fields: map[string]any{}}}
	maps.Copy(parts, users)
	c, present, merged, err := l.mergeStored(ctx, parts)
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
	c, more, err := l.complete(c, present, merged, parts)
	return c, slices.Concat(warnings, more), err
}
