// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strings"

	"github.com/pkg/errors"
)

// Commands that prepare a host, as the flag table names them.
const (
	hostPrepare = "host prepare"
	hostReset   = "host reset"
)

func hostFlags() []flagRow {
	return []flagRow{
		text("bundle", "", "`file` with programs and images, made by `slipway bundle create`", func(f *Flags) *string { return &f.Bundle }).on(hostPrepare),
		list("public-key", nil, "`files` with public keys, one of which must have signed the bundle; by default the keys in /etc/slipway/bundle-keys.d",
			func(f *Flags) *[]string { return &f.PublicKeys }).on(hostPrepare),
		text("digest", "", "SHA-256 of the bundle's file, as sha256:`hex`: another file is refused", func(f *Flags) *string { return &f.Digest }).on(hostPrepare),
		toggle("allow-downgrade", "let the bundle's programs replace newer ones on a node", func(f *Flags) *bool { return &f.AllowDowngrade }).on(hostPrepare),
		text("swap", "off", "what to do with swap: off turns it off, now and at boot; keep leaves it on", func(f *Flags) *string { return &f.Swap }).
			offers("off", "keep").on(hostPrepare),
		list("registry-mirror", nil, "`mirrors` that containerd pulls images from, as REGISTRY=URL", func(f *Flags) *[]string { return &f.RegistryMirrors }).
			on(hostPrepare),
	}
}

// LoadHost returns the desired state of a host to prepare or reset. Its CRISocket is empty unless the user names one.
func LoadHost(flags Flags) (*Node, error) {
	n := APINode("", nil)
	n.CRISocket, n.BindPort = flags.CRISocket, DefaultBindPort
	if n.CRISocket != "" && !strings.Contains(n.CRISocket, "://") {
		n.CRISocket = "unix://" + n.CRISocket
	}
	n.SkipPhases, n.IgnorePreflightErrors, n.DryRun = flags.SkipPhases, lowered(flags.IgnorePreflightErrors), flags.DryRun
	if flags.given("digest") && flags.Bundle == "" {
		return nil, errors.New("--digest is the digest of --bundle: give both")
	}
	if flags.given("swap") && flags.Swap != "off" && flags.Swap != "keep" {
		return nil, errors.Errorf("--swap must be off or keep, not %q", flags.Swap)
	}
	return n, nil
}
