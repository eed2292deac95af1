// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// InitOptions are the flags of `init`, its phases, and the commands that read its configuration.
type InitOptions struct {
	config.InitFlags

	// AnyHost says that nothing is done to this host, so a missing address may be made up.
	AnyHost bool
	// AnyRuntime says that any of several container runtimes will do.
	AnyRuntime bool
	// OnePhase says that a phase is run by its own command, maybe for an existing cluster.
	OnePhase bool
}

// WarnOfMissingEndpoint warns that sharing certificates is pointless if no control plane can join.
func WarnOfMissingEndpoint(ui ui.UI, node *config.Node) {
	if node.Cluster.ControlPlaneEndpoint == "" {
		ui.Warnf("the certificates are shared, but no control plane can join with them: " +
			"the cluster has no controlPlaneEndpoint (--control-plane-endpoint), an address that leads to all control planes")
	}
}

// LoadInit loads the desired state, and makes its parts.
func LoadInit(cmd *cobra.Command, g *cli.Globals, o *InitOptions) (*Parts, error) {
	o.Given = cli.Given(cmd.Flags())
	o.ignoreFilesMode(cmd.Flags())
	if err := o.TakeNetwork(cmd.Context(), g); err != nil {
		return nil, err
	}
	in, err := ReadInput(cmd.Context(), g, ModeOfFlags(g, cmd), o.ConfigFile)
	if err != nil {
		return nil, err
	}
	if o.AnyRuntime {
		in.AnyRuntime()
	}
	return o.Parts(cmd.Context(), g, in)
}

// Parts loads the desired state from input that's already been read.
func (o *InitOptions) Parts(ctx context.Context, g *cli.Globals, in *Input) (*Parts, error) {
	in.Options.Placeholders, in.Options.Existing = o.AnyHost, o.OnePhase || o.AnyHost
	in.Options.StartsKubelet = !o.AnyRuntime && !o.AnyHost
	node, warnings, err := config.LoadInit(ctx, in.File, o.InitFlags, in.Options)
	if err != nil {
		return nil, err
	}
	return NewParts(g, node, in.Host, warnings...), nil
}

// TakeNetwork adds --network's manifest to the flags, within the size limit for configurations.
func (o *InitOptions) TakeNetwork(ctx context.Context, g *cli.Globals) error {
	if !o.Given.Has("network") || slices.Contains([]string{"", config.NoNetwork, config.Flannel}, o.NetworkAddOn) {
		return nil
	}
	if o.NetworkAddOn == "-" && o.ConfigFile == "-" {
		return errors.New("--network and --config cannot both read standard input")
	}
	data, err := cli.ReadInput(ctx, g, o.NetworkAddOn, config.MaxSize+1)
	if err != nil {
		return errors.Wrap(err, "--network takes none, flannel or a file with a manifest")
	}
	if len(data) > config.MaxSize {
		return errors.Errorf("--network: %s has more than %d bytes; apply it with `kubectl` once the cluster is running", cli.InputName(o.NetworkAddOn), config.MaxSize)
	}
	o.NetworkManifest = data
	return nil
}
