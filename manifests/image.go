// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// SplitImage returns the text before the tag in an image's name, and the tag, empty if there is none. A digest is in neither.
func SplitImage(image string) (repository, tag string) {
	image, _, _ = strings.Cut(image, "@")
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, ""
}

// TagOf returns the tag in an image's name; empty if it has none.
func TagOf(image string) string {
	_, tag := SplitImage(image)
	return tag
}

// TagVersion parses a tag, which has an underscore in place of the plus sign of a version's build metadata.
func TagVersion(tag string) (*version.Version, error) {
	return version.ParseSemantic(strings.ReplaceAll(tag, "_", "+"))
}

// ImageOf returns the image of the component in a static Pod, or of its first container; empty for a broken manifest.
func ImageOf(manifest []byte) string {
	pod, err := DecodePod(manifest)
	if err != nil {
		return ""
	}
	return pod.Spec.Containers[0].Image
}

// ContainerImage returns the image of the container with that name; empty if there is none.
func ContainerImage(list []corev1.Container, name string) string {
	i := slices.IndexFunc(list, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		return ""
	}
	return list[i].Image
}
