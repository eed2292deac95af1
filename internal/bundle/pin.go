// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// pinAlgorithm begins a file's digest.
const pinAlgorithm = "sha256:"

// checkPin reads all of a file, unless the digest is empty.
func checkPin(file io.Reader, digest string) error {
	if digest == "" {
		return nil
	}
	text, named := strings.CutPrefix(digest, pinAlgorithm)
	want, err := hex.DecodeString(text)
	if !named || err != nil || len(want) != sha256.Size {
		return fault.New("the digest "+digest+" is not one such as sha256:4e07…, with 64 hexadecimal digits", "`sha256sum BUNDLE` prints them")
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return errors.Wrap(err, "cannot read the bundle")
	}
	if got := sum.Sum(nil); [sha256.Size]byte(got) != [sha256.Size]byte(want) {
		return fault.New("this is not the bundle with the digest "+digest+": its own is "+pinAlgorithm+hex.EncodeToString(got), "get the bundle with that digest")
	}
	return nil
}
