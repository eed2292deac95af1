// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bundle has the command `bundle`.
package bundle

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("bundle", "Work with bundles: single files with everything a node needs",
		newCreate(g), newSign(g), newInspect(g), newVerify(g), newPush(g))
}

type options struct{ publicKeys []string }

func (o *options) bind(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.publicKeys, "public-key", nil, "`file` with a minisign public key; one of these keys must have signed the bundle, instead of one in "+bundle.KeysDir)
}

// open opens a bundle, and checks its signature if there are trusted keys.
func (o *options) open(path string) (*bundle.Bundle, error) {
	keys, err := bundle.TrustedKeys(o.publicKeys)
	if err != nil {
		return nil, err
	}
	return bundle.Open(path, keys)
}

// completeBundle proposes files for a command's first argument.
func completeBundle(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{"tar"}, cobra.ShellCompDirectiveFilterFileExt
}

func newVerify(g *cli.Globals) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:               "verify BUNDLE",
		Short:             "Read a whole bundle, and verify its signature and every part",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: completeBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			if err := b.Each(cmd.Context(), nil); err != nil {
				return err
			}
			signed := "no public key is configured, so its maker is unknown"
			if b.SignedBy() != "" {
				signed = "signed by " + b.SignedBy()
			}
			x := b.Index()
			_, err = fmt.Fprintf(g.Streams.Out, "%s: %d parts of %s for %s/%s are complete; %s\n", args[0], len(x.Parts), x.KubernetesVersion, x.OS, x.Architecture, signed)
			return err
		},
	}
	o.bind(cmd.Flags())
	return cmd
}
