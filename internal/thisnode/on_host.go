// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// OnHost maps a path in a Pod's first container to the host. found is false if it's elsewhere: in the image, for example.
func OnHost(pod *corev1.Pod, inContainer string) (onHost string, found bool) {
	if len(pod.Spec.Containers) == 0 {
		return "", false
	}
	longest := 0
	for _, m := range pod.Spec.Containers[0].VolumeMounts {
		rest, within := strings.CutPrefix(inContainer, m.MountPath)
		if !within || rest != "" && rest[0] != '/' && !strings.HasSuffix(m.MountPath, "/") || len(m.MountPath) <= longest {
			continue
		}
		longest, onHost, found = len(m.MountPath), "", false
		for _, v := range pod.Spec.Volumes {
			if v.Name == m.Name && v.HostPath != nil {
				onHost, found = path.Join(v.HostPath.Path, m.SubPath, rest), true
			}
		}
	}
	return onHost, found
}
