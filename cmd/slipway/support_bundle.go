// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
)

func newSupportBundle(g *globals) *cobra.Command {
	var file string
	var allNamespaces bool
	o := &nodeOptions{}
	cmd := &cobra.Command{
		Use:   "support-bundle",
		Short: "Write what others need to see why this node does not work into a file, without secrets",
		Long: "Write what others need to see why this node does not work into a file, without secrets.\n\n" +
			"The tar.gz holds manifests, the kubelet's configuration, the states and journals of units, logs of containers in\n" +
			"kube-system, certificates without keys, kubeconfigs without credentials, facts about this host, and what\n" +
			"`diagnose` says. Keys, tokens, passwords, and the values of environment variables whose names are not known to\n" +
			"be harmless are taken out. Look through it before you give it away.",
		Args: takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			real, target, err := o.thisNode()
			if err != nil {
				return err
			}
			defer real.Close()
			target.Since = saidSince(cmd, real)
			name, err := real.Hostname()
			if err != nil {
				return err
			}
			if file == "" {
				file = fmt.Sprintf("slipway-support-%s-%s.tar.gz", name, real.Now().UTC().Format("20060102T150405Z"))
			}
			path, err := filepath.Abs(file)
			if err != nil {
				return err
			}
			data, err := bundle.Collect(cmd.Context(), real, bundle.Node{
				Target: target, PKI: config.DefaultCertificatesDir, Kubernetes: config.DefaultKubernetesDir, Version: thisBuild().version,
				AllNamespaces: allNamespaces,
			})
			if err != nil {
				return err
			}
			if _, err := real.WriteSecret(path, data); err != nil {
				return err
			}
			_, err = fmt.Fprintln(g.streams.out, path)
			return err
		},
	}
	o.Bind(cmd.Flags(), "support-bundle")
	cmd.Flags().StringVar(&file, "file", "", "output `file`; by default one in the current directory, named after the host and the time")
	cmd.Flags().BoolVar(&allNamespaces, "all-namespaces", false, "include container logs of all namespaces, not only of kube-system")
	return cmd
}
