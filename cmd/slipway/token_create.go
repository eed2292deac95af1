// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/phases"
)

type tokenCreateOptions struct {
	*tokenOptions

	output outputOptions
}

func newTokenCreate(g *globals, shared *tokenOptions) *cobra.Command {
	o := &tokenCreateOptions{tokenOptions: shared}
	cmd := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a token in the cluster, a new one unless it is given, and print it",
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
	// A token that is created and then cannot be printed is nobody's.
	if _, err := o.output.printer(nil); err != nil {
		return err
	}
	if o.DryRun {
		if err := checkPlanForm(o.output.form); err != nil {
			return errors.WithMessage(err, "--dry-run prints a plan")
		}
	}
	src, err := readConfigFile(cmd.Context(), g, o.ConfigFile)
	if err != nil {
		return err
	}
	opts := loadOptions(config.HostFacts{}, false)
	opts.Now = time.Now
	tokens, warnings, err := config.LoadTokens(src, o.Flags, opts)
	if err != nil {
		return err
	}
	p := o.parts(cmd, g, tokens, o.output.form)
	warn(p.env.UI, warnings)
	made, err := o.create(cmd.Context(), p, key)
	if err != nil {
		return err
	}
	if o.DryRun {
		return p.finish()
	}
	return printList(&o.output, g, made, func(w io.Writer) error { return printCreated(w, made) })
}

// create shares the certificates first: a token without them would be printed
// for nothing.
func (o *tokenCreateOptions) create(ctx context.Context, p *parts, key config.Secret) ([]*tokenObject, error) {
	if o.ControlPlane {
		var err error
		if key, err = o.share(ctx, p, key); err != nil {
			return nil, err
		}
	}
	if err := phases.CreateTokens(ctx, p.env); err != nil {
		return nil, err
	}
	var made []*tokenObject
	for _, t := range p.env.Config.BootstrapTokens {
		m := newTokenObject(t, p.env.Host.Now())
		if o.PrintJoinCommand {
			var err error
			if m.JoinCommand, err = phases.JoinCommand(ctx, p.env, t, key, p.kubeconfig.read); err != nil {
				return nil, err
			}
			m.CertificateKey = key.Reveal()
		}
		made = append(made, m)
	}
	return made, nil
}

// share uploads the certificates of this control plane, and returns the key
// that opens them: the user's, or a new one.
func (o *tokenCreateOptions) share(ctx context.Context, p *parts, key config.Secret) (config.Secret, error) {
	if key.IsZero() {
		text, err := loadOptions(config.HostFacts{}, false).NewCertificateKey()
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
	warnOfOnlyControlPlane(p.env.UI, node)
	node.SkipCertificateKeyPrint = true // it is part of the command
	env := *p.env
	env.Config = node
	return key, phases.UploadCerts(ctx, &env)
}

// printCreated prints what a script wants of each token: the command to join
// with, or the token.
func printCreated(w io.Writer, made []*tokenObject) error {
	for _, m := range made {
		text := m.Token
		if m.JoinCommand != "" {
			text = m.JoinCommand
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
	}
	return nil
}
