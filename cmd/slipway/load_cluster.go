// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases"
)

// askTime limits how long commands wait for the cluster's configuration when they can do without it: people look at
// certificates when the cluster is down.
const askTime = 5 * time.Second

// nodeOfCluster is this control plane as the cluster's configuration and the files on this host describe it.
func nodeOfCluster(ctx context.Context, env *phases.Env, key config.Secret) (*config.Node, []string, error) {
	stored, err := joining.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return nil, nil, err
	}
	self := thisnode.Current(env.Host)
	self.ControlPlane.CertificateKey = key.Reveal()
	return nodeFrom(stored, self)
}

func nodeFrom(stored []byte, self *config.JoinConfiguration) (*config.Node, []string, error) {
	real := host.New()
	defer real.Close()
	facts, err := hostFacts(real)
	if err != nil {
		return nil, nil, err
	}
	opts := acting{}.options(facts)
	opts.Placeholders, opts.AnyVersion = true, true
	return config.LoadCluster(stored, nil, nil, self, opts)
}

// certOptions are the flags that commands for certificates share: where the configuration and the files are.
type certOptions struct {
	config.Flags
	// offline is for commands that also work on hosts without a cluster: they do not warn if there is none.
	offline bool
}

// source is where a Node comes from.
type source int

const (
	sourceFile    source = iota // --config
	sourceCluster               // ConfigMap kubeadm-config
	sourceDefault               // the defaults and this host's files
)

// load makes the Node from the user's file, or else from the cluster, or else from the defaults. It warns if the cluster
// cannot be asked.
func (o *certOptions) load(cmd *cobra.Command, g *globals) (*config.Node, source, error) {
	node, from, warnings, err := o.loadPlain(cmd, g)
	if err != nil {
		return nil, from, err
	}
	warn(newUI(g), warnings)
	return node, from, o.place(cmd, node)
}

// place sets the directories that the command line names, as absolute paths. An empty name does not mean the current
// directory, but the default.
func (o *certOptions) place(cmd *cobra.Command, node *config.Node) error {
	var err error
	if cmd.Flags().Changed("cert-dir") && o.CertDir != "" {
		if node.Paths.PKI, err = filepath.Abs(o.CertDir); err != nil {
			return err
		}
	}
	if o.KubeconfigDir != "" {
		node.Paths.Kubeconfigs, err = filepath.Abs(o.KubeconfigDir)
	}
	return err
}

func (o *certOptions) loadPlain(cmd *cobra.Command, g *globals) (*config.Node, source, []string, error) {
	if o.ConfigFile != "" {
		node, warnings, err := o.loadFile(cmd.Context(), g)
		return node, sourceFile, warnings, err
	}
	real := host.New()
	defer real.Close()
	node, warnings, failed := o.askCluster(cmd, g)
	if failed == nil {
		return node, sourceCluster, warnings, nil
	}
	if cmd.Context().Err() != nil {
		return nil, sourceCluster, nil, failed
	}
	node, _, err := nodeFrom(config.DefaultCluster(), thisnode.Current(real))
	if o.offline && errors.Is(failed, fs.ErrNotExist) {
		return node, sourceDefault, nil, err
	}
	return node, sourceDefault, []string{"cannot read the cluster's configuration; using the defaults and this host's files instead " +
		"(--config names a file to use): " + failed.Error()}, err
}

func (o *certOptions) askCluster(cmd *cobra.Command, g *globals) (*config.Node, []string, error) {
	kubeconfig := kubeconfigOfNode(cmd)
	api := config.APINode(kubeconfig.String(), nil)
	api.Timeouts.KubernetesAPICall = askTime
	p := newAPIParts(g, api, kubeconfig)
	defer p.close()
	return nodeOfCluster(cmd.Context(), p.env, config.Secret{})
}

// loadFile reads a configuration for `init`. It does not matter here which of several runtimes this host uses.
func (o *certOptions) loadFile(ctx context.Context, g *globals) (*config.Node, []string, error) {
	in, err := readNodeInput(ctx, g, planning{g: g}, o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	in.host.Close()
	in.options.Facts.Sockets, in.options.Placeholders, in.options.Existing = nil, true, true
	return config.LoadInit(ctx, in.file, config.Flags{}, in.options)
}
