// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
)

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
			obj := newObject(b)
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

func newObject(b *bundle.Bundle) *object {
	x := b.Index()
	return &object{
		TypeMeta:          metav1.TypeMeta{APIVersion: x.APIVersion, Kind: x.Kind},
		KubernetesVersion: x.KubernetesVersion, OS: x.OS, Architecture: x.Architecture, SignedBy: b.SignedBy(), Parts: x.Parts,
	}
}

func (o *object) table(w io.Writer) error {
	signed := o.SignedBy
	if signed == "" {
		signed = "not checked, because no public key is configured"
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(t, "Kubernetes:\t%s\nPlatform:\t%s/%s\nSignature:\t%s\n\n", o.KubernetesVersion, o.OS, o.Architecture, signed)
	fmt.Fprintln(t, "TYPE\tNAME\tVERSION\tSIZE\tLICENSE\tSOURCE\tDIGEST")
	for _, p := range o.Parts {
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", p.Type, p.Name, p.Version, p.Size, p.License, p.Source, p.Digest)
	}
	return t.Flush()
}
