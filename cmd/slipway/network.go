// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// takeNetwork adds to the flags the manifest that --network names, of at most the size that a configuration may have.
func (o *initOptions) takeNetwork(ctx context.Context, g *globals) error {
	if !slices.Contains(o.Given, "network") || slices.Contains([]string{"", config.NoNetwork, config.Flannel}, o.NetworkAddOn) {
		return nil
	}
	if o.NetworkAddOn == "-" && o.ConfigFile == "-" {
		return errors.New("--network and --config cannot both read standard input")
	}
	data, err := readInput(ctx, g, o.NetworkAddOn, config.MaxSize+1)
	if err != nil {
		return errors.Wrap(err, "--network takes none, flannel or a file with a manifest")
	}
	if len(data) > config.MaxSize {
		return errors.Errorf("--network: %s has more than %d bytes; apply it with `kubectl` once the cluster is there", inputName(o.NetworkAddOn), config.MaxSize)
	}
	o.NetworkManifest = data
	return nil
}
