// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/bundle"
)

type bundleInspectOptions struct {
	bundleOptions
	output outputOptions
}

func newBundleInspect(g *globals) *cobra.Command {
	o := &bundleInspectOptions{output: outputOptions{people: "table"}}
	cmd := &cobra.Command{
		Use:   "inspect BUNDLE",
		Short: "Show what is in a bundle",
		Long: "Show what is in a bundle.\n\n" +
			"The signature, the index and the manifests are verified; `bundle verify` reads the parts, too.",
		Args:              takes(1, 1),
		ValidArgsFunction: completeBundle,
		RunE: func(_ *cobra.Command, args []string) error {
			b, err := o.open(args[0])
			if err != nil {
				return err
			}
			defer b.Close()
			return o.output.print(g, newBundleObject(b), func(obj runtime.Object, w io.Writer) error { return obj.(*bundleObject).table(w) })
		},
	}
	o.bind(cmd.Flags())
	o.output.bind(cmd.Flags())
	return cmd
}

// bundleObject is a bundle's index, and by whom it is signed.
type bundleObject struct {
	metav1.TypeMeta `json:",inline"`

	KubernetesVersion string        `json:"kubernetesVersion"`
	OS                string        `json:"os"`
	Architecture      string        `json:"architecture"`
	SignedBy          string        `json:"signedBy,omitempty"`
	Parts             []bundle.Part `json:"parts"`
}

// DeepCopyObject makes it an object for the printers.
func (o *bundleObject) DeepCopyObject() runtime.Object { return new(*o) }

func newBundleObject(b *bundle.Bundle) *bundleObject {
	x := b.Index()
	return &bundleObject{
		TypeMeta:          metav1.TypeMeta{APIVersion: x.APIVersion, Kind: x.Kind},
		KubernetesVersion: x.KubernetesVersion, OS: x.OS, Architecture: x.Architecture, SignedBy: b.SignedBy(), Parts: x.Parts,
	}
}

func (o *bundleObject) table(w io.Writer) error {
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
