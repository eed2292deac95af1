// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bundle has the command `bundle`, for files with all parts of a node: create, verify, inspect, sign and push.
// internal/bundle does the work.
package bundle

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
)

func New(g *cli.Globals) *cobra.Command {
	return cli.Group("bundle", "Work with bundles: single files with everything a node needs",
		newCreate(g), newSign(g), newInspect(g), newVerify(g), newPush(g))
}

type options struct {
	publicKeys []string
	given      func(flag string) bool
}

func (o *options) bind(fs *pflag.FlagSet) {
	o.given = fs.Changed
	fs.StringSliceVar(&o.publicKeys, "public-key", nil, "`file` with a minisign public key; one of these keys must have signed the bundle, instead of one in "+bundle.KeysDir)
}

// open opens a bundle, and checks its signature if there are trusted keys.
func (o *options) open(path string) (*bundle.Bundle, error) {
	keys, err := o.trusted()
	if err != nil {
		return nil, err
	}
	return bundle.Open(path, keys)
}

func (o *options) trusted() (bundle.Keys, error) {
	if len(o.publicKeys) == 0 && o.given("public-key") {
		return bundle.Keys{}, config.NewEmptyFlag("public-key")
	}
	return bundle.TrustedKeys(o.publicKeys)
}

// completeBundle proposes files for a command's first argument.
func completeBundle(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return []cobra.Completion{"tar"}, cobra.ShellCompDirectiveFilterFileExt
}

func newVerify(g *cli.Globals) *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:               "verify BUNDLE",
		Short:             "Read a whole bundle, and verify its signature and every part",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: completeBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			if err := b.Each(cmd.Context(), nil); err != nil {
				return err
			}
			signed := "no public key is configured, so its maker is unknown"
			if b.SignedBy() != "" {
				signed = "signed by " + b.SignedBy()
			}
			x := b.Index()
			_, err = fmt.Fprintf(g.Streams.Out, "%s: %d parts of %s for %s/%s are complete; %s\n", args[0], len(x.Parts), x.KubernetesVersion, x.OS, x.Architecture, signed)
			return err
		},
	}
	o.bind(cmd.Flags())
	return cmd
}

func newInspect(g *cli.Globals) *cobra.Command {
	o, output := &options{}, &cli.OutputOptions{People: "table"}
	cmd := &cobra.Command{
		Use:   "inspect BUNDLE",
		Short: "Show what is in a bundle",
		Long: "Show what is in a bundle.\n\n" +
			"The signature, the index and the manifests are verified; `bundle verify` reads the parts, too.",
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: completeBundle,
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			x := b.Index()
			obj := &object{
				TypeMeta:          metav1.TypeMeta{APIVersion: x.APIVersion, Kind: x.Kind},
				KubernetesVersion: x.KubernetesVersion, OS: x.OS, Architecture: x.Architecture, SignedBy: b.SignedBy(), Parts: x.Parts,
			}
			return output.Print(g, obj, obj.table)
		},
	}
	o.bind(cmd.Flags())
	output.Bind(cmd.Flags())
	return cmd
}

type object struct {
	metav1.TypeMeta `json:",inline"`

	KubernetesVersion string        `json:"kubernetesVersion"`
	OS                string        `json:"os"`
	Architecture      string        `json:"architecture"`
	SignedBy          string        `json:"signedBy,omitempty"`
	Parts             []bundle.Part `json:"parts"`
}

func (o *object) DeepCopyObject() runtime.Object { return new(*o) }

func (o *object) table(w io.Writer) error {
	signed := o.SignedBy
	if signed == "" {
		signed = "not checked, because no public key is configured"
	}
	_, err := fmt.Fprintf(w, "Kubernetes:   %s\nPlatform:     %s/%s\nSignature:    %s\n\n", o.KubernetesVersion, o.OS, o.Architecture, signed)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, p := range o.Parts {
		rows = append(rows, []string{string(p.Type), p.Name, p.Version, fmt.Sprint(p.Size), p.License, p.Source, p.Digest.String()})
	}
	return ui.Table(w, "TYPE\tNAME\tVERSION\tSIZE\tLICENSE\tSOURCE\tDIGEST", rows)
}

func newPush(g *cli.Globals) *cobra.Command {
	o, access := &options{}, bundle.Access{}
	cmd := &cobra.Command{
		Use:   "push BUNDLE REGISTRY[/PATH]",
		Short: "Push a bundle and its images to a registry",
		Long: "Push a bundle and its images to a registry.\n\n" +
			"Each image keeps its path and tag: registry.k8s.io/kube-proxy:v1.37.2 becomes REGISTRY/PATH/kube-proxy:v1.37.2.\n" +
			"CoreDNS gets two names, so that REGISTRY/PATH serves as --image-repository as well as a mirror of\n" +
			"registry.k8s.io. Images of other architectures under the same tag stay. The bundle itself becomes\n" +
			"REGISTRY/PATH/slipway-bundle. Credentials are those of `docker login` or `podman login`.",
		Args:              cli.Takes(2, 2),
		ValidArgsFunction: completeBundle,
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			return b.Push(cmd.Context(), args[1], access, cli.NewUI(g).Printf)
		},
	}
	o.bind(cmd.Flags())
	bindAccess(cmd.Flags(), &access)
	return cmd
}

func bindAccess(fs *pflag.FlagSet, a *bundle.Access) {
	fs.BoolVar(&a.PlainHTTP, "plain-http", false, "allow registries without HTTPS, in a network that you trust")
	fs.StringVar(&a.CAFile, "registry-ca", "", "`file` with CA certificates to trust for registries, beside the system's")
}
