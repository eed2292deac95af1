// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/machine"
)

type createOptions struct {
	signOptions
	from, output, cache string
	access              bundle.Access
}

func newCreate(g *cli.Globals) *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:   "create --from LIST -o FILE",
		Short: "Make a bundle from local files, downloads and images",
		Long: "Make a bundle from local files, downloads and images.\n\n" +
			"LIST is a YAML file with the parts and their sources, or a directory with such a file,\n" +
			bundle.ListName + ". The same parts make the same bytes. docs/bundle.md describes the list and the format.",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), g) },
	}
	cmd.Flags().StringVar(&o.from, "from", "", "`file` with the list of parts, or a directory with "+bundle.ListName)
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "the bundle's `file`")
	cmd.Flags().StringVar(&o.cache, "cache", "", "`directory` that keeps downloads; by default slipway in the user's cache directory")
	bindAccess(cmd.Flags(), &o.access)
	o.bind(cmd.Flags())
	return cmd
}

func (o *createOptions) run(ctx context.Context, g *cli.Globals) error {
	if o.from == "" || o.output == "" {
		return errors.New("--from and --output are needed")
	}
	list, err := bundle.ReadList(o.from)
	if err != nil {
		return err
	}
	addUnits(list)
	key, err := o.secretKey(ctx, g)
	if err != nil {
		return err
	}
	cache, err := o.cacheDir()
	if err != nil {
		return err
	}
	create := bundle.Create{List: list, Output: o.output, Cache: cache, Access: o.access, Sign: key, Say: cli.NewUI(g).Printf}
	if err := create.Run(ctx); err != nil {
		return err
	}
	_, err = fmt.Fprintln(g.Streams.Out, o.output)
	return err
}

// addUnits adds the units some programs need, unless the list has its own.
func addUnits(list *bundle.List) {
	for program, content := range machine.BundledUnits() {
		if list.Has(bundle.Program, program) {
			list.Provide(bundle.ListedPart{
				Name: program + ".service", Type: bundle.Unit, Version: list.KubernetesVersion, Source: "slipway", License: "Apache-2.0",
			}, content)
		}
	}
}

func (o *createOptions) cacheDir() (string, error) {
	if o.cache != "" {
		return o.cache, nil
	}
	dir, err := os.UserCacheDir()
	return filepath.Join(dir, "slipway"), fault.WithRemedy(err, "name a directory with --cache")
}
