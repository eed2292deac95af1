// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/support"
)

type supportOptions struct {
	nodeOptions
	file          string
	allNamespaces bool
}

func NewSupportBundle(g *cli.Globals) *cobra.Command {
	o := &supportOptions{}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Collect diagnostics into an archive, without secrets",
		Long: "Collect diagnostics of this node into an archive, without secrets.\n\n" +
			"The tar.gz holds the static Pod manifests, the kubelet's configuration, the states and journals of units, the logs\n" +
			"of containers in kube-system, certificates without their keys, kubeconfigs without credentials, facts about this\n" +
			"host, and the output of `diagnose`. Keys, tokens, passwords, and the values of environment variables that are not\n" +
			"known to be harmless are removed. Review the archive before you share it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			real, err := rootHost()
			if err != nil {
				return err
			}
			defer real.Close()
			path, err := o.write(cmd.Context(), g, real)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.Streams.Out, path)
			return err
		},
	}
	config.Bind(cmd.Flags(), "support-bundle", &o.DiagnoseFlags)
	cmd.Flags().StringVar(&o.file, "file", "", "output `file`; by default one in the current directory, named after the host and the time")
	cmd.Flags().BoolVar(&o.allNamespaces, "all-namespaces", false, "include container logs of all namespaces, not only of kube-system")
	return cmd
}

// write returns the path of the archive, which only its owner can read.
func (o *supportOptions) write(ctx context.Context, g *cli.Globals, real *linux.Host) (string, error) {
	path, err := o.path(real)
	if err != nil {
		return "", err
	}
	data, err := support.Collect(ctx, real, support.Node{
		Target: o.target(ctx, real), PKI: config.DefaultCertificatesDir, Kubernetes: config.DefaultKubernetesDir,
		Version: g.Version(), AllNamespaces: o.allNamespaces,
	})
	if err != nil {
		return "", err
	}
	_, err = real.WriteSecret(path, data)
	return path, err
}

func (o *supportOptions) path(real *linux.Host) (string, error) {
	if o.file != "" {
		return filepath.Abs(o.file)
	}
	name, err := real.Hostname()
	if err != nil {
		return "", err
	}
	return filepath.Abs(fmt.Sprintf("slipway-support-%s-%s.tar.gz", name, real.Now().UTC().Format("20060102T150405Z")))
}
