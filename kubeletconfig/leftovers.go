// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// leftover matches the flags that older minor versions wrote to kubeadm-flags.env. The runtime's endpoint is in
// instance-config.yaml since. A kubelet does not start with the others: --container-runtime is gone since 1.27,
// --pod-infra-container-image since 1.35 (https://github.com/kubernetes/kubernetes/pull/133779).
var leftover = lazyregexp.New(`[ ]?--(?:container-runtime|container-runtime-endpoint|pod-infra-container-image)=[^\s"'\\]+`)

// WithoutLeftovers returns kubeadm-flags.env without what older minor versions have left in it, and what was removed.
// Everything else stays as it is.
func WithoutLeftovers(flagsEnv []byte) (cleaned []byte, removed []string) {
	var out strings.Builder
	for line := range strings.Lines(string(flagsEnv)) {
		if strings.HasPrefix(line, flagsVariable+"=") {
			line = leftover().ReplaceAllStringFunc(line, func(word string) string {
				removed = append(removed, strings.TrimSpace(word))
				return ""
			})
			line = strings.Replace(line, `=" `, `="`, 1)
		}
		out.WriteString(line)
	}
	return []byte(out.String()), removed
}
