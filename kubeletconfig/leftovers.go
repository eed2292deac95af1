// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"regexp"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// leftover matches flags that older minor versions wrote to kubeadm-flags.env. The runtime's endpoint has moved to
// instance-config.yaml: see WithEndpointOf. A kubelet doesn't start with the others: see refused and refusedSince135.
var leftover = lazyregexp.New(`[ ]?--(?:container-runtime|container-runtime-endpoint|pod-infra-container-image)=[^\s"'\\]+`)

const endpointFlag = "--container-runtime-endpoint="

// refused matches leftovers that no supported kubelet accepts: --container-runtime was removed in 1.27. refusedSince135 also
// matches --pod-infra-container-image (https://github.com/kubernetes/kubernetes/pull/133779).
var (
	refused         = lazyregexp.New(`[ ]?--container-runtime=[^\s"'\\]+`)
	refusedSince135 = lazyregexp.New(`[ ]?--(?:container-runtime|pod-infra-container-image)=[^\s"'\\]+`)
)

// WithoutLeftovers removes flags of older minor versions from kubeadm-flags.env, and returns them too. Everything else stays.
func WithoutLeftovers(flagsEnv []byte) (cleaned []byte, removed []string) {
	return without(flagsEnv, leftover())
}

// WithoutRefused removes leftovers that keep a kubelet from starting, and returns them too. A nil version is unknown.
func WithoutRefused(flagsEnv []byte, kubelet *version.Version) (cleaned []byte, removed []string) {
	if kubelet != nil && kubelet.LessThan(version.MajorMinor(1, 35)) {
		return without(flagsEnv, refused())
	}
	return without(flagsEnv, refusedSince135())
}

// WithEndpointOf returns instance-config.yaml with the runtime's endpoint of a removed flag. Its other fields stay.
func WithEndpointOf(removed []string, instance []byte) ([]byte, error) {
	endpoint := ""
	for _, flag := range removed { // its last value counts
		if value, ok := strings.CutPrefix(flag, endpointFlag); ok {
			endpoint = value
		}
	}
	if endpoint == "" {
		return instance, nil
	}
	fields := map[string]any{}
	if err := yaml.Unmarshal(instance, &fields); err != nil {
		return nil, errors.WithStack(err)
	}
	if fields["containerRuntimeEndpoint"] == endpoint {
		return instance, nil
	}
	fields["containerRuntimeEndpoint"] = endpoint
	data, err := yaml.Marshal(fields)
	return data, errors.WithStack(err)
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
