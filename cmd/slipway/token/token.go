// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package token has the command `token`, for bootstrap tokens: it creates, lists and deletes them, and prints the join command of
// a new one. internal/tokens does the work.
package token

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/tokens"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
)

func New(g *cli.Globals) *cobra.Command {
	cmd := cli.Group("token", "Create, list and delete the tokens that nodes join with",
		newCreate(g), newList(g), newDelete(g), newGenerate(g))
	config.Bind(cmd.PersistentFlags(), "token", nil)
	return cmd
}

// newParts makes a token command's parts. A plan is printed in form.
func newParts(cmd *cobra.Command, g *cli.Globals, form string) (*env.Parts, error) {
	return env.ModeOfFlags(g, cmd).APIParts(env.KubeconfigOfUser(cmd), form, "token "+cmd.Name())
}

func store(p *env.Parts) tokens.Store {
	return tokens.Store{Cluster: p.Env.Cluster, UI: p.Env.UI, Now: p.Env.Host.Now}
}

func newDelete(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "delete TOKEN...",
		Short: "Delete tokens from the cluster, by ID or full token",
		Args:  cli.Takes(1, cli.AnyNumber),
		RunE: func(cmd *cobra.Command, args []string) error {
			ids := make([]string, len(args))
			for i, text := range args {
				var err error
				if ids[i], err = config.TokenID(text); err != nil {
					return errors.Wrapf(err, "argument %d", i+1)
				}
			}
			p, err := newParts(cmd, g, "text")
			if err != nil {
				return err
			}
			defer p.Close()
			if err := store(p).Delete(cmd.Context(), ids); err != nil {
				return err
			}
			return p.Show(func() error { return nil })
		},
	}
}

func newGenerate(g *cli.Globals) *cobra.Command {
	return &cobra.Command{
		Use:   "generate",
		Short: "Print a new random token, without creating it in the cluster",
		RunE: func(*cobra.Command, []string) error {
			id, secret := config.NewToken()
			cli.NewUI(g).Result(id + "." + secret)
			return nil
		},
	}
}

func newList(g *cli.Globals) *cobra.Command {
	out := &cli.OutputOptions{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the tokens in the cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newParts(cmd, g, "text")
			if err != nil {
				return err
			}
			defer p.Close()
			tokens, err := store(p).List(cmd.Context())
			if err != nil {
				return err
			}
			now := p.Env.Host.Now()
			list := make([]*object, len(tokens))
			for i, t := range tokens {
				list[i] = newObject(t, now)
			}
			return cli.PrintList(out, g, list, func(w io.Writer) error { return table(w, list, now) })
		},
	}
	out.Bind(cmd.Flags())
	return cmd
}

// object is a bootstrap token in the output. Only `token create --print-join-command` sets the last three fields, Slipway's own.
type object struct {
	metav1.TypeMeta `json:",inline"`

	Token          string       `json:"token"`
	Description    string       `json:"description,omitempty"`
	Expires        *metav1.Time `json:"expires,omitempty"`
	Usages         []string     `json:"usages,omitempty"`
	Groups         []string     `json:"groups,omitempty"`
	JoinCommand    string       `json:"joinCommand,omitempty"`
	CACertHashes   []string     `json:"caCertHashes,omitempty"`
	CertificateKey string       `json:"certificateKey,omitempty"`
}

func (t *object) DeepCopyObject() runtime.Object { return new(*t) }

// newObject is for an existing token, or for a token whose TTL starts now.
func newObject(t config.Token, now time.Time) *object {
	o := &object{
		TypeMeta: metav1.TypeMeta{APIVersion: cli.OutputAPI, Kind: "BootstrapToken"},
		Token:    t.ID + "." + t.Secret.Reveal(), Description: t.Description, Usages: t.Usages, Groups: t.Groups,
	}
	expires := t.Expires
	if expires.IsZero() && t.TTL > 0 {
		expires = now.Add(t.TTL)
	}
	if !expires.IsZero() {
		o.Expires = new(metav1.NewTime(expires.UTC().Truncate(time.Second)))
	}
	return o
}

// table prints nothing, not even headings, if there are no tokens.
func table(w io.Writer, list []*object, now time.Time) error {
	if len(list) == 0 {
		return nil
	}
	var rows [][]string
	for _, o := range list {
		ttl, expires := "<forever>", "<never>"
		if o.Expires != nil {
			ttl, expires = duration.ShortHumanDuration(o.Expires.Sub(now)), o.Expires.Format(time.RFC3339)
		}
		rows = append(rows, []string{o.Token, ttl, expires, orNone(o.Usages), cmp.Or(o.Description, "<none>"), orNone(o.Groups)})
	}
	return ui.Table(w, "TOKEN\tTTL\tEXPIRES\tUSAGES\tDESCRIPTION\tEXTRA GROUPS", rows)
}

func orNone(list []string) string { return cmp.Or(strings.Join(list, ","), "<none>") }

// printCreated prints each token's join command, or else the token, for scripts.
func printCreated(w io.Writer, made []*object) error {
	for _, m := range made {
		if _, err := fmt.Fprintln(w, cmp.Or(m.JoinCommand, m.Token)); err != nil {
			return err
		}
	}
	return nil
}

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
	p, err := newParts(cmd, g, o.output.Form)
	if err != nil {
		return err
	}
	defer p.Close()
	cli.Warn(p.Env.UI, warnings)
	made, err := o.create(cmd.Context(), p, tokens, key, env.KubeconfigOfUser(cmd))
	if err != nil {
		return err
	}
	return p.Show(func() error {
		return cli.PrintList(&o.output, g, made, func(w io.Writer) error { return printCreated(w, made) })
	})
}

// create shares the certificates first: the token would be of no use without them. Nor would a token that nobody sees, so its join
// command is there before it's created.
func (o *createOptions) create(ctx context.Context, p *env.Parts, list []config.Token, key config.Secret, kubeconfig env.UserKubeconfig) ([]*object, error) {
	if o.ControlPlane {
		var err error
		if key, err = o.share(ctx, p, key); err != nil {
			return nil, err
		}
	}
	var made []*object
	for _, t := range list {
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
	return made, store(p).Create(ctx, list)
}

// share uploads this control plane's certificates, and returns the key to decrypt them: the user's or a new key.
func (o *createOptions) share(ctx context.Context, p *env.Parts, key config.Secret) (config.Secret, error) {
	if key.IsZero() {
		key = config.NewSecret(env.NewCertificateKey())
	}
	node, warnings, err := env.NodeOfCluster(ctx, p.Env, key)
	if err != nil {
		return key, err
	}
	cli.Warn(p.Env.UI, warnings)
	if err := bootstrap.CheckCluster(ctx, p.Env.ForNode(node)); err != nil {
		return key, err
	}
	env.WarnOfMissingEndpoint(p.Env.UI, node)
	node = node.With(func(n *config.Node) { n.SkipCertificateKeyPrint = true }) // the join command has it
	return key, bootstrap.UploadCerts(ctx, p.Env.ForNode(node))
}
