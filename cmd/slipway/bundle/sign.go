// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"context"
	"fmt"
	"os"

	"github.com/pkg/errors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
)

type signOptions struct {
	signKey, passwordFile string
	given                 func(flag string) bool
}

func (o *signOptions) bind(fs *pflag.FlagSet) {
	o.given = fs.Changed
	fs.StringVar(&o.signKey, "sign-key", "", "`file` with the minisign secret key that signs the bundle")
	fs.StringVar(&o.passwordFile, "password-file", "", "`file` with the secret key's password, or - for standard input; by default it is asked for on the terminal")
}

// secretKey is nil if no key was named.
func (o *signOptions) secretKey(ctx context.Context, g *cli.Globals) (*bundle.SecretKey, error) {
	if o.signKey == "" {
		if o.given("sign-key") {
			return nil, config.NewEmptyFlag("sign-key")
		}
		return nil, nil
	}
	return bundle.SecretKeyFromFile(o.signKey, func() (string, error) {
		if o.passwordFile != "" {
			return cli.ReadSecret(ctx, g, o.passwordFile)
		}
		return askPassword(ctx, g, o.signKey)
	})
}

func askPassword(ctx context.Context, g *cli.Globals, key string) (string, error) {
	in, ok := g.Streams.In.(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return "", fault.New(key+" has a password, and there is no terminal to ask for it", "put it into a file and name that with --password-file")
	}
	before, err := term.GetState(int(in.Fd()))
	if err != nil {
		return "", errors.Wrap(err, "cannot ask for the password")
	}
	defer term.Restore(int(in.Fd()), before) //nolint:errcheck // nothing else can be done
	fmt.Fprintf(g.Streams.Err, "Password of %s: ", key)
	defer fmt.Fprintln(g.Streams.Err)
	return cli.Interruptible(ctx, cli.StandardInput, func() (string, error) {
		text, err := term.ReadPassword(int(in.Fd()))
		return string(text), err
	})
}

type signatureOptions struct {
	signOptions
	keys      options
	signature string
}

func newSign(g *cli.Globals) *cobra.Command {
	o := &signatureOptions{}
	cmd := &cobra.Command{
		Use:   "sign BUNDLE",
		Short: "Sign a bundle, or add a signature made elsewhere",
		Long: "Sign a bundle, or add a signature made elsewhere.\n\n" +
			"The bundle is verified, and then replaced by one with the signature. The signature is of the file index.json in it,\n" +
			"which has the digests of everything else. With a key on another machine:\n" +
			"  tar -xOf BUNDLE index.json > index.json, there minisign -S -m index.json, and here --signature index.json.minisig",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: completeBundle,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), g, args[0]) },
	}
	o.bind(cmd.Flags())
	o.keys.bind(cmd.Flags())
	cmd.Flags().StringVar(&o.signature, "signature", "", "`file` with a signature of index.json in minisign's format, instead of --sign-key")
	cmd.MarkFlagsMutuallyExclusive("sign-key", "public-key") // a new signature isn't checked
	return cmd
}

func (o *signatureOptions) run(ctx context.Context, g *cli.Globals, path string) error {
	if (o.signKey == "") == (o.signature == "") {
		return errors.New("one of --sign-key and --signature is needed")
	}
	key, err := o.secretKey(ctx, g)
	if err != nil {
		return err
	}
	var signature []byte
	if o.signature != "" {
		const longest = 4096
		if signature, err = cli.ReadInput(ctx, g, o.signature, longest); err != nil {
			return errors.Wrap(err, "--signature")
		}
	}
	keys, err := o.trusted()
	if err != nil {
		return err
	}
	if key == nil && !keys.Required() {
		cli.NewUI(g).Warn("the signature was not checked, because no public key is configured", "name the signer's with --public-key")
	}
	return bundle.Sign(ctx, path, key, signature, keys)
}

// trusted are the keys for a signature made elsewhere. Nothing else needs them.
func (o *signatureOptions) trusted() (bundle.Keys, error) {
	if o.signature == "" {
		return bundle.Keys{}, nil
	}
	return o.keys.trusted()
}
