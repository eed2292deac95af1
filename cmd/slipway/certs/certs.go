// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package certs has the commands `certs` and `kubeconfig`: expiry and renewal of this control plane's certificates, signing
// requests for a CA kept elsewhere, the key of shared certificates, and kubeconfigs for users. internal/pki and phases/renew do
// the work.
package certs

import (
	"context"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/renew"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("certs", "Check and renew this control plane's certificates",
		newCheckExpiration(g), newRenew(g), newGenerateCSR(g), newCertificateKeyCommand(g))
}

func newCertificateKeyCommand(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "certificate-key",
		Short: "Print a new random key for sharing control plane certificates",
		RunE: func(*cobra.Command, []string) error {
			cli.NewUI(g).Result(env.NewCertificateKey())
			return nil
		},
	}
}

func newGenerateCSR(g *cli.Globals) *cobra.Command {
	o := &options{offline: true}
	cmd := &cobra.Command{
		Use:   "generate-csr",
		Short: "Write keys and certificate signing requests for a CA that is kept elsewhere",
		RunE: func(cmd *cobra.Command, _ []string) error {
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := linux.New()
			defer real.Close()
			return pki.Store{Config: node, Host: real, UI: cli.NewUI(g)}.GenerateCSRs()
		},
	}
	config.Bind(cmd.Flags(), "certs generate-csr", &o.CertsFlags)
	return cmd
}

// options are the flags certificate commands share: where the configuration and the files are.
type options struct {
	config.CertsFlags
	// offline is for commands that also work on hosts without a cluster, so it needs no warning if there's none.
	offline bool
}

// load makes the Node from the user's file, the cluster, or the defaults and this host's files, in this order. assumed reports
// whether these are the defaults. It warns if the cluster can't be asked.
func (o *options) load(cmd *cobra.Command, g *cli.Globals) (node *config.Node, assumed bool, err error) {
	node, assumed, warnings, err := o.loadPlain(cmd, g)
	if err != nil {
		return nil, false, err
	}
	cli.Warn(cli.NewUI(g), warnings)
	node, err = o.place(cmd, node)
	return node, assumed, err
}

// place makes the command line's directories absolute. An empty name means the default, not the current directory.
func (o *options) place(cmd *cobra.Command, node *config.Node) (*config.Node, error) {
	paths := node.Paths
	var err error
	if cmd.Flags().Changed("cert-dir") && o.CertDir != "" {
		if paths.PKI, err = filepath.Abs(o.CertDir); err != nil {
			return nil, err
		}
	}
	if o.KubeconfigDir != "" {
		paths.Kubeconfigs, err = filepath.Abs(o.KubeconfigDir)
	}
	return node.With(func(n *config.Node) { n.Paths = paths }), err
}

func (o *options) loadPlain(cmd *cobra.Command, g *cli.Globals) (node *config.Node, assumed bool, warnings []string, err error) {
	if o.ConfigFile != "" {
		node, warnings, err = o.loadFile(cmd.Context(), g)
		return node, false, warnings, err
	}
	real := linux.New()
	defer real.Close()
	node, warnings, failed := o.askCluster(cmd, g)
	if failed == nil || cmd.Context().Err() != nil {
		return node, false, warnings, failed
	}
	node, err = fromFiles(real)
	if o.offline && errors.Is(failed, fs.ErrNotExist) {
		return node, true, nil, err
	}
	return node, true, []string{"cannot read the cluster's configuration; using the defaults and this host's files instead " +
		"(--config names a file to use): " + failed.Error()}, err
}

// fromFiles describes this host without asking the cluster.
func fromFiles(real *linux.Host) (*config.Node, error) {
	return env.NodeFromFiles(real, thisnode.Current(real))
}

func (o *options) askCluster(cmd *cobra.Command, g *cli.Globals) (*config.Node, []string, error) {
	kubeconfig := env.KubeconfigOfNode(cmd)
	p := env.NewAPIParts(g, kubeconfig, env.AskTimeout)
	defer p.Close()
	return env.NodeOfCluster(cmd.Context(), p.Env, config.Secret{})
}

// loadFile reads a configuration for `init`.
func (o *options) loadFile(ctx context.Context, g *cli.Globals) (*config.Node, []string, error) {
	in, err := env.ReadInput(ctx, g, env.Planning{G: g}, o.ConfigFile)
	if err != nil {
		return nil, nil, err
	}
	in.AnyRuntime()
	in.Host.Close()
	in.Options.Placeholders, in.Options.Existing = true, true
	return config.LoadInit(ctx, in.File, config.InitFlags{}, in.Options)
}

func NewKubeconfig(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("kubeconfig", "Create kubeconfig files for users", newKubeconfigUser(g))
	cmd.RunE = cli.OfferSubcommands
	return cmd
}

func newKubeconfigUser(g *cli.Globals) *cobra.Command {
	var user pki.User
	var token string
	o := &options{offline: true}
	cmd := &cobra.Command{
		Use:   "user",
		Short: "Print a kubeconfig for a user, with a new client certificate or a token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if user.Name == "" {
				return errors.New("--client-name is required: the name of the user")
			}
			node, _, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			real := linux.New()
			defer real.Close()
			user.Token = config.NewSecret(token)
			data, err := pki.Store{Config: node, Host: real, UI: cli.NewUI(g)}.UserKubeconfig(user)
			if err != nil {
				return err
			}
			_, err = g.Streams.Out.Write(data)
			return err
		},
	}
	fs := cmd.Flags()
	config.Bind(fs, "kubeconfig user", &o.CertsFlags)
	fs.StringVar(&user.Name, "client-name", "", "user `name`, the common name (CN) of the certificate")
	fs.StringSliceVar(&user.Groups, "org", nil, "user `groups`, the organizations (O) of the certificate")
	fs.StringVar(&token, "token", "", "`token` that authenticates the user instead of a certificate")
	fs.DurationVar(&user.Validity, "validity-period", 365*24*time.Hour, "validity of the certificate")
	return cmd
}

func newRenew(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("renew", "Renew this control plane's certificates, with new keys",
		renewCommand(g, "all", "Renew all existing certificates except the CAs", renew.Options{}))
	cmd.Long = cmd.Short + ", signed by the same CA.\n\n" +
		"A renewed certificate keeps the subject and names of the old one. Names that the configuration\n" +
		"(--config, or else the cluster's) has gained since are added."
	for _, r := range pki.RenewableRows() {
		cmd.AddCommand(renewCommand(g, r.Name, "Renew the "+r.Summary, renew.Options{Name: r.Name}))
	}
	return cmd
}

func renewCommand(g *cli.Globals, use, short string, renewal renew.Options) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if renewal.Within < 0 {
				return errors.Errorf("--within=%s: must not be negative", renewal.Within)
			}
			node, assumed, err := o.load(cmd, g)
			if err != nil {
				return err
			}
			renewal.FromOldCertificates = assumed
			real := linux.New()
			defer real.Close()
			return env.Acting{G: g}.Parts(node, real).Run(cmd.Context(), renew.Certificates(renewal), nil)
		},
	}
	cmd.Flags().DurationVar(&renewal.Within, "within", 0, "renew only certificates that end within this time, such as 720h")
	cmd.Flags().BoolVar(&renewal.Restart, "restart", false, "restart the components that use a renewed file, and renew an expired kubelet.conf")
	config.Bind(cmd.Flags(), "certs renew", &o.CertsFlags)
	return cmd
}
