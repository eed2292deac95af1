// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/test/schema"
)

// TestInspectHasItsSchema: the output for programs is as documented, with and without a signature.
func TestInspectHasItsSchema(t *testing.T) {
	s, err := schema.BundleIndex()
	if err != nil {
		t.Fatal(err)
	}
	for _, signer := range []string{"", "RWT4 (release.pub)"} {
		var printed bytes.Buffer
		part := bundle.Part{Name: "kubelet", Type: bundle.Program, Version: "v1.37.2", Source: "here", License: "Apache-2.0",
			Digest: v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}
		o := &object{TypeMeta: metav1.TypeMeta{APIVersion: bundle.APIVersion, Kind: "BundleIndex"},
			KubernetesVersion: "v1.37.2", OS: "linux", Architecture: "amd64", SignedBy: signer, Parts: []bundle.Part{part}}
		output := &cli.OutputOptions{People: "table", Form: "json"}
		if err := output.Print(&cli.Globals{Streams: cli.Streams{Out: &printed}}, o, o.table); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(printed.Bytes()); err != nil {
			t.Errorf("signed by %q: %v\n%s", signer, err, &printed)
		}
	}
}
