// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/phases"
)

func newConfigImages(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List or pull the images that a control plane needs",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newImagesList(g), newImagesPull(g))
	return cmd
}

func newImagesList(g *globals) *cobra.Command {
	o, out := &initOptions{anyRuntime: true}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that a control plane needs",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.close()
			return out.print(g, imageList(parts.env.Config.Images()), printImages)
		},
	}
	o.Bind(cmd.Flags(), "config images list")
	out.bind(cmd.Flags())
	return cmd
}

func newImagesPull(g *globals) *cobra.Command {
	o := &initOptions{}
	cmd := &cobra.Command{
		Use:   "pull",
		Short: "Pull the images that a control plane needs, in parallel",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.close()
			if g.asPeer() {
				parts.last = pulledLines(parts.env.Config)
			}
			if err := phases.PullImages(cmd.Context(), parts.env); err != nil {
				return err
			}
			return parts.show(parts.tellLast)
		},
	}
	o.Bind(cmd.Flags(), "config images pull")
	return cmd
}

// loadImages loads the configuration that decides which images are needed, on any host.
func loadImages(cmd *cobra.Command, g *globals, o *initOptions) (*parts, error) {
	o.anyHost = true
	return loadInit(cmd, g, o)
}

// imageList has the fields that kubeadm prints, for scripts that parse them.
func imageList(images []string) runtime.Object {
	list := make([]any, len(images))
	for i, image := range images {
		list[i] = image
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": outputAPI, "kind": "Images", "images": list,
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
