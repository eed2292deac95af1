// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"path"
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
