// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path"
	"testing"

	"github.com/slipway-k8s/slipway/test/fixture"
)

// maxFiles in a directory still make a list that can be read at a glance.
const maxFiles = 40

// TestDirectorySizes counts the Go files of each directory. Directories of testdata may have more files, as testdata/configs does:
// each is a row of a table, and the test that reads them all names the one at fault.
func TestDirectorySizes(t *testing.T) {
	sizes := map[string]int{}
	for _, file := range fixture.GoFiles(t) {
		sizes[path.Dir(file)]++
	}
	for dir, size := range sizes {
		if size > maxFiles {
			t.Errorf("%s has %d Go files, more than %d: split the package, or merge files of the same subject", dir, size, maxFiles)
		}
	}
}
