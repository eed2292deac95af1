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

// Minor drops the patch, for comparisons.
func Minor(v *version.Version) *version.Version { return version.MajorMinor(v.Major(), v.Minor()) }
