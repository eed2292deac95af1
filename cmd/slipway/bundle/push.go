// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
)

func newPush(g *cli.Globals) *cobra.Command {
	o, access := &options{}, bundle.Access{}
	cmd := &cobra.Command{
		Use:   "push BUNDLE REGISTRY[/PATH]",
		Short: "Push a bundle and its images to a registry",
		Long: "Push a bundle and its images to a registry.\n\n" +
			"Each image keeps its path and tag: registry.k8s.io/kube-proxy:v1.37.2 becomes REGISTRY/PATH/kube-proxy:v1.37.2.\n" +
			"CoreDNS gets two names, so that REGISTRY/PATH serves as --image-repository as well as a mirror of\n" +
			"registry.k8s.io. Images of other architectures under the same tag stay. The bundle itself becomes\n" +
			"REGISTRY/PATH/slipway-bundle. Credentials are those of `docker login` or `podman login`.",
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: completeBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			return b.Push(cmd.Context(), args[1], access, cli.NewUI(g).Printf)
		},
	}
	o.bind(cmd.Flags())
	bindAccess(cmd.Flags(), &access)
	return cmd
}

func bindAccess(fs *pflag.FlagSet, a *bundle.Access) {
	fs.BoolVar(&a.PlainHTTP, "plain-http", false, "allow registries without HTTPS, in a network that you trust")
	fs.StringVar(&a.CAFile, "registry-ca", "", "`file` with CA certificates to trust for registries, beside the system's")
}
