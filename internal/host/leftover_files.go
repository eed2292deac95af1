// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"crypto/rand"
	"strings"
)

// While a file is being written, it has the name `.NAME`, followed by tempSuffix and eight
// random characters. The leading dot keeps the kubelet from reading a half-written
// manifest.
const (
	tempSuffix    = ".slipway-"
	tempRandomLen = 8
)

// TempName returns the name that a file has while it's being written.
func TempName(name string) string { return "." + name + tempSuffix + rand.Text()[:tempRandomLen] }

// LeftoverOf returns the name of the file that a run was writing when it was
// interrupted and left this directory entry behind.
func LeftoverOf(entry string) (name string, found bool) {
	i := strings.LastIndex(entry, tempSuffix)
	if i < 1 || entry[0] != '.' || len(entry) != i+len(tempSuffix)+tempRandomLen {
		return "", false
	}
	return entry[1:i], true
}
