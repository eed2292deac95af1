// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package token

import (
	"context"
	"io"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/tokens"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
)

type createOptions struct {
	config.TokenFlags

	output cli.OutputOptions
}

func newCreate(g *cli.Globals) *cobra.Command {
	o := &createOptions{}
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a token in the cluster, random unless it is given, and print it",
		Args:  cli.Takes(0, 1),
		RunE:  func(cmd *cobra.Command, args []string) error { return o.run(cmd, g, args) },
	}
	config.Bind(cmd.Flags(), "token create", &o.TokenFlags)
	o.output.Bind(cmd.Flags())
	return cmd
}

func (o *createOptions) run(cmd *cobra.Command, g *cli.Globals, args []string) error {
	o.Given = cli.Given(cmd.Flags())
	if len(args) > 0 {
		o.Token = args[0]
	}
	if (o.CertificateKey != "" || o.ControlPlane) && !o.PrintJoinCommand {
		return errors.New("--certificate-key and --control-plane need --print-join-command: they change the command that it prints")
	}
	key, err := config.CertificateKey(o.CertificateKey)
	if err != nil {
		return errors.Wrap(err, "--certificate-key")
	}
	// A token that was created but can't be printed is of no use.
	if _, err := o.output.Printer(); err != nil {
		return err
	}
	src, err := cli.ReadConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return err
	}
	opts := env.Acting{G: g}.Options(config.HostFacts{})
	opts.Now = time.Now
	tokens, warnings, err := config.LoadTokens(src, o.TokenFlags, opts)
	if err != nil {
		return err
	}
	p, err := newParts(cmd, g, tokens, o.output.Form)
	if err != nil {
		return err
	}
	defer p.Close()
	cli.Warn(p.Env.UI, warnings)
	made, err := o.create(cmd.Context(), p, key, env.KubeconfigOfUser(cmd))
	if err != nil {
		return err
	}
	return p.Show(func() error {
		return cli.PrintList(&o.output, g, made, func(w io.Writer) error { return printCreated(w, made) })
	})
}

// create shares the certificates first: the token would be of no use without them.
func (o *createOptions) create(ctx context.Context, p *env.Parts, key config.Secret, kubeconfig env.UserKubeconfig) ([]*object, error) {
	if o.ControlPlane {
		var err error
		if key, err = o.share(ctx, p, key); err != nil {
			return nil, err
		}
	}
	if err := store(p).Create(ctx, p.Env.Config.BootstrapTokens); err != nil {
		return nil, err
	}
	var made []*object
	for _, t := range p.Env.Config.BootstrapTokens {
		m := newObject(t, p.Env.Host.Now())
		if o.PrintJoinCommand {
			command, err := store(p).JoinCommand(ctx, t, key, tokens.Kubeconfig{Path: kubeconfig.String(), Read: kubeconfig.Read})
			if err != nil {
				return nil, err
			}
			m.JoinCommand, m.CACertHashes, m.CertificateKey = command.Text(" "), command.Pins, command.CertificateKey
		}
		made = append(made, m)
	}
	return made, nil
}

// share uploads this control plane's certificates, and returns the key to decrypt them: the user's or a new one.
func (o *createOptions) share(ctx context.Context, p *env.Parts, key config.Secret) (config.Secret, error) {
	if key.IsZero() {
		key = config.NewSecret(env.NewCertificateKey())
	}
	node, warnings, err := env.NodeOfCluster(ctx, p.Env, key)
	if err != nil {
		return key, err
	}
	cli.Warn(p.Env.UI, warnings)
	env.WarnOfMissingEndpoint(p.Env.UI, node)
	env := *p.Env
	env.Config = node.With(func(n *config.Node) { n.SkipCertificateKeyPrint = true }) // the join command has it
	return key, bootstrap.UploadCerts(ctx, &env)
}
