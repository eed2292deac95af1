// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/bundle"
)

type bundlePushOptions struct {
	bundleOptions
	registry bundle.Registry
}

func newBundlePush(g *globals) *cobra.Command {
	o := &bundlePushOptions{}
	cmd := &cobra.Command{
		Use:   "push BUNDLE REGISTRY[/PATH]",
		Short: "Push a bundle and its images to a registry",
		Long: "Push a bundle and its images to a registry.\n\n" +
			"Each image keeps its path and tag: registry.k8s.io/kube-proxy:v1.37.2 becomes REGISTRY/PATH/kube-proxy:v1.37.2.\n" +
			"CoreDNS is there under two names, so that REGISTRY/PATH serves as --image-repository as well as a mirror of\n" +
			"registry.k8s.io. Images of other architectures under the same tag stay. The bundle itself becomes\n" +
			"REGISTRY/PATH/slipway-bundle. Credentials are those of `docker login` or `podman login`.",
		Args: takes(2, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.registry.Target, o.registry.Say = args[1], newUI(g).Printf
			return o.run(cmd.Context(), args[0])
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().BoolVar(&o.registry.PlainHTTP, "plain-http", false, "allow HTTP without TLS, for a registry in a network that you trust")
	cmd.Flags().StringVar(&o.registry.CAFile, "registry-ca", "", "`file` with CA certificates to trust for the registry, beside the system's")
	return cmd
}

func (o *bundlePushOptions) run(ctx context.Context, path string) error {
	b, err := o.open(path)
	if err != nil {
		return err
	}
	defer b.Close()
	return b.Push(ctx, o.registry)
}
