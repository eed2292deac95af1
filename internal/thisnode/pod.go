// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OnHost maps a path in a Pod's first container to the host, by the innermost mount. found is false if it's elsewhere: in the image,
// for example.
func OnHost(pod *corev1.Pod, inContainer string) (onHost string, found bool) {
	if len(pod.Spec.Containers) == 0 {
		return "", false
	}
	longest := -1
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		at := strings.TrimSuffix(path.Clean(m.MountPath), "/")
		rest, within := strings.CutPrefix(path.Clean(inContainer), at)
		if !within || rest != "" && rest[0] != '/' || len(at) <= longest {
			continue
		}
		longest, onHost, found = len(at), "", false
		for _, v := range pod.Spec.Volumes {
			if v.Name == m.Name && v.HostPath != nil {
				onHost, found = path.Join(v.HostPath.Path, m.SubPath, rest), true
			}
		}
	}
	return onHost, found
}

// PodFlag returns a flag's value as the program in a Pod's first container takes it, the last one; empty if it isn't set.
func PodFlag(pod *corev1.Pod, name string) (value string) {
	if pod == nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	words := slices.Concat(pod.Spec.Containers[0].Command, pod.Spec.Containers[0].Args)
	for i, word := range words {
		if given, found := strings.CutPrefix(word, "--"+name+"="); found {
			value = given
		} else if word == "--"+name && i+1 < len(words) {
			value = words[i+1]
		}
	}
	return value
}
