// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases/node"
)

func newImages(g *cli.Globals) *cobra.Command {
	return cli.Group("images", "List or pull the images that a control plane needs",
		newImagesList(g), newImagesPull(g))
}

func newImagesList(g *cli.Globals) *cobra.Command {
	o, out := &env.InitOptions{AnyRuntime: true}, &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that a control plane needs",
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.Close()
			images := parts.Env.Config.Images()
			return out.Print(g, imageList(images), func(w io.Writer) error {
				_, err := io.WriteString(w, strings.Join(images, "\n")+"\n")
				return err
			})
		},
	}
	config.Bind(cmd.Flags(), "config images list", &o.InitFlags)
	out.Bind(cmd.Flags())
	return cmd
}

func newImagesPull(g *cli.Globals) *cobra.Command {
	o := &env.InitOptions{}
	cmd := &cobra.Command{
		Use:   "pull",
		Short: "Pull the images that a control plane needs, in parallel",
		RunE: func(cmd *cobra.Command, _ []string) error {
			parts, err := loadImages(cmd, g, o)
			if err != nil {
				return err
			}
			defer parts.Close()
			if g.EmulatesKubeadm() {
				parts.Last = cli.PulledLines(parts.Env.Config)
			}
			if err := node.PullImages(cmd.Context(), parts.Env); err != nil {
				return err
			}
			return parts.Show(parts.TellLast)
		},
	}
	config.Bind(cmd.Flags(), "config images pull", &o.InitFlags)
	return cmd
}

func loadImages(cmd *cobra.Command, g *cli.Globals, o *env.InitOptions) (*env.Parts, error) {
	o.AnyHost = true
	return env.LoadInit(cmd, g, o)
}

// imageList has kubeadm's fields, for scripts that parse them.
func imageList(images []string) runtime.Object {
	list := make([]any, len(images))
	for i, image := range images {
		list[i] = image
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": cli.OutputAPI, "kind": "Images", "images": list,
	}}
}
