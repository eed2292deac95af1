// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/internal/bundle"
)

func newBundle(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Work with bundles: one file with all that a node needs",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newBundleCreate(g), newBundleSign(g), newBundleInspect(g), newBundleVerify(g), newBundlePush(g))
	return cmd
}

// bundleOptions are the flags of commands that read a bundle.
type bundleOptions struct{ publicKeys []string }

func (o *bundleOptions) bind(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.publicKeys, "public-key", nil, "`file` with a public key of minisign; the bundle must be signed by one of these, in place of those in "+bundle.KeysDir)
}

// open opens a bundle that a trusted key has signed, if there is one.
func (o *bundleOptions) open(path string) (*bundle.Bundle, error) {
	keys, err := o.keys()
	if err != nil {
		return nil, err
	}
	return bundle.Open(path, keys)
}

func (o *bundleOptions) keys() (bundle.Keys, error) {
	if len(o.publicKeys) > 0 {
		return bundle.KeysFromFiles(o.publicKeys...)
	}
	return bundle.ConfiguredKeys(bundle.KeysDir)
}

// completeBundle is for a shell that asks for a command's first argument.
func completeBundle(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{"tar"}, cobra.ShellCompDirectiveFilterFileExt
}
