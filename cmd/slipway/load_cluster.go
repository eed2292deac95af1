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
	"github.com/slipway-k8s/slipway/phases"
)

// askTime bounds the question for the cluster's configuration where the answer
// can be done without: the cluster may be down, which is why one looks at its
// certificates.
const askTime = 5 * time.Second

// nodeOfCluster is this control plane node as the cluster's configuration and
// the files on this host have it.
func nodeOfCluster(ctx context.Context, env *phases.Env, key config.Secret) (*config.Node, []string, error) {
	stored, err := phases.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return nil, nil, err
	}
	self := phases.ThisNode(env.Host)
	self.ControlPlane.CertificateKey = key.Reveal()
	return nodeFrom(stored, self)
}

func nodeFrom(stored []byte, self *config.JoinConfiguration) (*config.Node, []string, error) {
	real, facts, err := hostFacts()
	if err != nil {
		return nil, nil, err
	}
	real.Close()
	opts := loadOptions(facts, false)
	opts.Placeholders, opts.AnyVersion = true, true
	return config.LoadCluster(stored, nil, nil, self, opts)
}

// certOptions are the flags that commands about certificates share: where the
// configuration comes from, and where the files are.
type certOptions struct {
	config.Flags

	// offline tells that the command is for hosts without a cluster as well:
	// a cluster that is not there is nothing to warn of.
	offline bool
}

// source tells where a Node comes from.
type source int

const (
	sourceFile    source = iota // --config
	sourceCluster               // ConfigMap kubeadm-config
	sourceDefault               // neither: the defaults and this host's files
)

// load makes the Node from the user's file, or else from the cluster, or else
// from the defaults. Why the cluster could not be asked is a warning.
func (o *certOptions) load(cmd *cobra.Command, g *globals) (*config.Node, source, error) {
	node, from, warnings, err := o.loadPlain(cmd, g)
	if err != nil {
		return nil, from, err
	}
	warn(newUI(g), warnings)
	return node, from, o.place(cmd, node)
}

// place takes the directories that the command line names, as absolute paths. An
// empty name is none: it is not the directory that the command is called in.
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
	node, warnings, err := o.askCluster(cmd, g)
	if err == nil {
		return node, sourceCluster, warnings, nil
	}
	if cmd.Context().Err() != nil {
		return nil, sourceCluster, nil, err
	}
	missing := err
	reason := "the cluster's configuration cannot be read, so the defaults and the files of this host stand in for it (--config names another): " + err.Error()
	node, _, err = nodeFrom(config.DefaultCluster(), phases.ThisNode(real))
	if o.offline && errors.Is(missing, fs.ErrNotExist) {
		return node, sourceDefault, nil, err
	}
	return node, sourceDefault, []string{reason}, err
}

func (o *certOptions) askCluster(cmd *cobra.Command, g *globals) (*config.Node, []string, error) {
	kubeconfig := kubeconfigOfNode(cmd)
	api := config.APINode(kubeconfig.String(), nil)
	api.Timeouts.KubernetesAPICall = askTime
	return nodeOfCluster(cmd.Context(), apiParts(g, api, kubeconfig, false, "", "").env, config.Secret{})
}

// loadFile reads a configuration for `init`. Which of several runtimes this
// host uses does not matter here.
func (o *certOptions) loadFile(ctx context.Context, g *globals) (*config.Node, []string, error) {
	src, err := readConfigFile(ctx, g, o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	real, facts, err := hostFacts()
	if err != nil {
		return nil, nil, err
	}
	real.Close()
	facts.Sockets = nil
	opts := loadOptions(facts, true)
	opts.Placeholders = true
	return config.LoadInit(ctx, src, config.Flags{}, opts)
}
