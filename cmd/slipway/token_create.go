// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/tokens"
	"github.com/slipway-k8s/slipway/phases"
)

type tokenCreateOptions struct {
	config.Flags

	output outputOptions
}

func newTokenCreate(g *globals) *cobra.Command {
	o := &tokenCreateOptions{}
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a token in the cluster, random unless it is given, and print it",
		Args:  takes(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Given = given(cmd.Flags())
			if len(args) > 0 {
				o.Token = args[0]
			}
			return o.run(cmd, g)
		},
	}
	o.Bind(cmd.Flags(), "token create")
	o.output.bind(cmd.Flags())
	return cmd
}

func (o *tokenCreateOptions) run(cmd *cobra.Command, g *globals) error {
	if (o.CertificateKey != "" || o.ControlPlane) && !o.PrintJoinCommand {
		return errors.New("--certificate-key and --control-plane need --print-join-command: they change the command that it prints")
	}
	key, err := config.CertificateKey(o.CertificateKey)
	if err != nil {
		return errors.Wrap(err, "--certificate-key")
	}
	// A token that was created but cannot be printed is of no use.
	if _, err := o.output.printer(nil); err != nil {
		return err
	}
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return err
	}
	opts := acting{g}.options(config.HostFacts{})
	opts.Now = time.Now
	tokens, warnings, err := config.LoadTokens(src, o.Flags, opts)
	if err != nil {
		return err
	}
	p, err := tokenParts(cmd, g, tokens, o.output.form)
	if err != nil {
		return err
	}
	defer p.close()
	warn(p.env.UI, warnings)
	made, err := o.create(cmd.Context(), p, key, kubeconfigOfUser(cmd))
	if err != nil {
		return err
	}
	return p.show(func() error {
		return printList(&o.output, g, made, func(w io.Writer) error { return printCreated(w, made) })
	})
}

// create shares the certificates first: without them, the token would be of no use.
func (o *tokenCreateOptions) create(ctx context.Context, p *parts, key config.Secret, kubeconfig userKubeconfig) ([]*tokenObject, error) {
	if o.ControlPlane {
		var err error
		if key, err = o.share(ctx, p, key); err != nil {
			return nil, err
		}
	}
	if err := tokensOf(p).Create(ctx, p.env.Config.BootstrapTokens); err != nil {
		return nil, err
	}
	var made []*tokenObject
	for _, t := range p.env.Config.BootstrapTokens {
		m := newTokenObject(t, p.env.Host.Now())
		if o.PrintJoinCommand {
			command, err := tokensOf(p).JoinCommand(ctx, t, key, tokens.Kubeconfig{Path: kubeconfig.String(), Read: kubeconfig.read})
			if err != nil {
				return nil, err
			}
			m.JoinCommand, m.CACertHashes, m.CertificateKey = command.Text(" "), command.Pins, command.CertificateKey
		}
		made = append(made, m)
	}
	return made, nil
}

// share uploads this control plane's certificates, and returns the key that decrypts them: the user's or a new one.
func (o *tokenCreateOptions) share(ctx context.Context, p *parts, key config.Secret) (config.Secret, error) {
	if key.IsZero() {
		text, err := newCertificateKey()
		if err != nil {
			return key, err
		}
		key = config.NewSecret(text)
	}
	node, warnings, err := nodeOfCluster(ctx, p.env, key)
	if err != nil {
		return key, err
	}
	warn(p.env.UI, warnings)
	warnOfMissingEndpoint(p.env.UI, node)
	node.SkipCertificateKeyPrint = true // the join command has it
	env := *p.env
	env.Config = node
	return key, phases.UploadCerts(ctx, &env)
}
