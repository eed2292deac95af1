// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestOpenPinned takes only the file with the digest: a signature doesn't distinguish an older bundle from a newer one.
func TestOpenPinned(t *testing.T) {
	path := create(t, testList(t))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	other := "sha256:" + strings.Repeat("0", 64)
	for name, tt := range map[string]struct {
		digest string
		want   []string
	}{
		"its own":         {digest: digest},
		"in upper case":   {digest: "sha256:" + strings.ToUpper(digest[7:])},
		"none":            {},
		"another":         {other, []string{other, digest}},
		"without a kind":  {digest[7:], []string{digest[7:], "64"}},
		"of another kind": {"sha512:" + digest[7:], []string{"sha256:"}},
		"too short":       {digest[:20], []string{"64"}},
		"no hexadecimal":  {"sha256:" + strings.Repeat("x", 64), []string{"64"}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := OpenPinned(path, Keys{}, tt.digest)
			if err == nil {
				defer b.Close()
				err = b.Each(t.Context(), nil)
			}
			fact.Error(t, err, tt.want...)
		})
	}
}
