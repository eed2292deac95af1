// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/phases"
)

func newImages(g *cli.Globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List or pull the images that a control plane needs",
		RunE:  cli.RequireSubcommand,
	}
	cmd.AddCommand(newImagesList(g), newImagesPull(g))
	return cmd
}

func newImagesList(g *cli.Globals) *cobra.Command {
	o, out := &env.InitOptions{AnyRuntime: true}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that a control plane needs",
		Args:  cli.Takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.Close()
			return out.Print(g, imageList(parts.Env.Config.Images()), printImages)
		},
	}
	o.Bind(cmd.Flags(), "config images list")
	out.Bind(cmd.Flags())
	return cmd
}

func newImagesPull(g *cli.Globals) *cobra.Command {
	o := &env.InitOptions{}
	cmd := &cobra.Command{
		Use:   "pull",
		Short: "Pull the images that a control plane needs, in parallel",
		Args:  cli.Takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.Close()
			if g.AsPeer() {
				parts.Last = cli.PulledLines(parts.Env.Config)
			}
			if err := phases.PullImages(cmd.Context(), parts.Env); err != nil {
				return err
			}
			return parts.Show(parts.TellLast)
		},
	}
	o.Bind(cmd.Flags(), "config images pull")
	return cmd
}

// loadImages loads the configuration that decides which images are needed, on any host.
func loadImages(cmd *cobra.Command, g *cli.Globals, o *env.InitOptions) (*env.Parts, error) {
	o.AnyHost = true
	return env.LoadInit(cmd, g, o)
}

// imageList has the fields that kubeadm prints, for scripts that parse them.
func imageList(images []string) runtime.Object {
	list := make([]any, len(images))
	for i, image := range images {
		list[i] = image
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cli.OutputAPI, "kind": "Images", "images": list,
	}}
}

func printImages(obj runtime.Object, w io.Writer) error {
	for _, image := range obj.(*unstructured.Unstructured).Object["images"].([]any) {
		if _, err := fmt.Fprintln(w, image); err != nil {
			return err
		}
	}
	return nil
}
