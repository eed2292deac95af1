// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

func newConfigImages(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "List or pull the images of a control plane",
		RunE:  requireSubcommand,
	}
	cmd.AddCommand(newImagesList(g), newImagesPull(g))
	return cmd
}

func newImagesList(g *globals) *cobra.Command {
	o, out := &initOptions{}, &outputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images of a control plane",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, _, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			return out.print(g, imageList(node.Images()), printImages)
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
		Short: "Pull the images of a control plane, side by side",
		Args:  takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.close()
			return phases.PullImages(cmd.Context(), parts.env)
		},
	}
	o.Bind(cmd.Flags(), "config images pull")
	return cmd
}

// loadImages loads what images depend on.
func loadImages(cmd *cobra.Command, g *globals, o *initOptions) (*config.Node, *parts, error) {
	o.anyHost = true
	return loadInit(cmd, g, o)
}

// imageList has the form that the peer's users parse.
func imageList(images []string) runtime.Object {
	list := make([]any, len(images))
	for i, image := range images {
		list[i] = image
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "output.kubeadm.k8s.io/v1alpha3", "kind": "Images", "images": list,
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
