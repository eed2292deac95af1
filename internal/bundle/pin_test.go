// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
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

// TestPinnedHead: a file that changes after its digest was checked doesn't become another bundle.
func TestPinnedHead(t *testing.T) {
	path := create(t, testList(t))
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	from, err := pinned(f, "sha256:"+hex.EncodeToString(sum[:]))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, make([]byte, len(data)), 0o644); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4096)
	if _, err := from.ReadAt(got, 0); err != nil || !bytes.Equal(got, data[:len(got)]) {
		t.Errorf("it reads %x, %v", got[:8], err)
	}
}
