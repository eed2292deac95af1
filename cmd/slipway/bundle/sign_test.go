// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
)

// TestTrusted: a broken file of a public key is only in the way of a signature to be checked, not of a new one.
func TestTrusted(t *testing.T) {
	broken := options{publicKeys: []string{filepath.Join(t.TempDir(), "none.pub")}}
	_, err := (&signatureOptions{keys: broken, signOptions: signOptions{signKey: "release.key"}}).trusted()
	fact.Error(t, err)
	_, err = (&signatureOptions{keys: broken, signature: "index.json.minisig"}).trusted()
	fact.Error(t, err, "none.pub")
}
