// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"runtime"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/containerd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/machine"
)

func controlPlaneHere(cmd *cobra.Command, m env.Mode, real *linux.Host) (*config.Node, []string, error) {
	if !thisnode.IsControlPlane(real) {
		return nil, nil, nil
	}
	stored, warnings, err := m.Stored(cmd.Context(), real)
	if err != nil {
		return nil, nil, err
	}
	self := thisnode.Current(real)
	env.KeepMode(cmd, self)
	node, more, err := env.NodeFrom(stored, self)
	return node, append(warnings, more...), errors.WithMessage(err, "this host is a control plane, and its configuration")
}

// newPreparation opens the bundle, which must be for this machine.
func newPreparation(flags config.HostFlags) (_ *machine.Prepare, err error) {
	prepare := &machine.Prepare{
		BundleFile: flags.Bundle, BundleDigest: flags.Digest, KeepSwap: flags.Swap == "keep", AllowDowngrade: flags.AllowDowngrade,
	}
	for _, text := range flags.RegistryMirrors {
		mirror, err := containerd.ParseMirror(text)
		if err != nil {
			return nil, err
		}
		prepare.Mirrors = append(prepare.Mirrors, mirror)
	}
	if flags.Bundle != "" {
		if prepare.Bundle, err = openBundle(flags); err != nil {
			return nil, err
		}
	}
	return prepare, nil
}

func openBundle(flags config.HostFlags) (*bundle.Bundle, error) {
	keys, err := bundle.TrustedKeys(flags.PublicKeys)
	if err != nil {
		return nil, err
	}
	b, err := bundle.OpenPinned(flags.Bundle, keys, flags.Digest)
	if err != nil {
		return nil, err
	}
	if err := b.Fits(runtime.GOOS, runtime.GOARCH); err != nil {
		_ = b.Close() // only read from
		return nil, err
	}
	return b, nil
}

func closeBundle(p *machine.Prepare) {
	if p.Bundle != nil {
		_ = p.Bundle.Close() // only read from
	}
}
