// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// leftover matches the flags that older minor versions wrote to kubeadm-flags.env. The runtime's endpoint is in
// instance-config.yaml since. A kubelet does not start with the others: see refused and refusedSince135.
var leftover = lazyregexp.New(`[ ]?--(?:container-runtime|container-runtime-endpoint|pod-infra-container-image)=[^\s"'\\]+`)

// refused matches the leftovers that no supported kubelet accepts: --container-runtime is gone since 1.27. refusedSince135
// also matches --pod-infra-container-image (https://github.com/kubernetes/kubernetes/pull/133779).
var (
	refused         = lazyregexp.New(`[ ]?--container-runtime=[^\s"'\\]+`)
	refusedSince135 = lazyregexp.New(`[ ]?--(?:container-runtime|pod-infra-container-image)=[^\s"'\\]+`)
)

// WithoutLeftovers returns kubeadm-flags.env without what older minor versions have left in it, and what was removed.
// Everything else stays as it is.
func WithoutLeftovers(flagsEnv []byte) (cleaned []byte, removed []string) {
	return without(flagsEnv, leftover())
}

// WithoutRefused returns kubeadm-flags.env without the leftovers with which a kubelet does not start, and what was removed.
// A kubelet of an unknown version is nil.
func WithoutRefused(flagsEnv []byte, kubelet *version.Version) (cleaned []byte, removed []string) {
	if kubelet != nil && kubelet.LessThan(version.MajorMinor(1, 35)) {
		return without(flagsEnv, refused())
	}
	return without(flagsEnv, refusedSince135())
}

func without(flagsEnv []byte, flags *regexp.Regexp) (cleaned []byte, removed []string) {
	var out strings.Builder
	for line := range strings.Lines(string(flagsEnv)) {
		if strings.HasPrefix(line, flagsVariable+"=") {
			line = flags.ReplaceAllStringFunc(line, func(word string) string {
				removed = append(removed, strings.TrimSpace(word))
				return ""
			})
			line = strings.Replace(line, `=" `, `="`, 1)
		}
		out.WriteString(line)
	}
	return []byte(out.String()), removed
}
