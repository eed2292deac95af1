// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package releases

import "k8s.io/apimachinery/pkg/util/version"

// KubeletSkew is how many minor versions a kubelet may be older than its API server:
// https://kubernetes.io/releases/version-skew-policy/
const KubeletSkew = 3

// MinorOf returns the minor release of a version: 1.37 for v1.37.2. It's empty if the text isn't a version.
func MinorOf(text string) string {
	v, err := version.ParseGeneric(text)
	if err != nil {
		return ""
	}
	return Minor(v).String()
}

// Less reports whether a version's minor release is older than another's; false if either text isn't a version.
func Less(a, b string) bool {
	x, err := version.ParseGeneric(a)
	y, otherErr := version.ParseGeneric(b)
	return err == nil && otherErr == nil && Minor(x).LessThan(Minor(y))
}

// Span returns the oldest and the newest of these texts that are versions; nil if none is.
func Span(texts []string) (oldest, newest *version.Version) {
	for _, text := range texts {
		v, err := version.ParseSemantic(text)
		if err != nil {
			continue
		}
		if oldest == nil || v.LessThan(oldest) {
			oldest = v
		}
		if newest == nil || newest.LessThan(v) {
			newest = v
		}
	}
	return oldest, newest
}

// Minor drops the patch, for comparisons.
func Minor(v *version.Version) *version.Version { return version.MajorMinor(v.Major(), v.Minor()) }
