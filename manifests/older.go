// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// FlexVolume is the volume where older controller managers find flex volume plugins.
const FlexVolume = "flexvolume-dir"

// AsOlder returns made, a static Pod from this program, as older releases of kubeadm wrote it, as far as have, the existing Pod,
// which has a container, was written that way:
//   - until 1.35, with a volume for flex volume plugins in the controller manager (kubernetes/kubernetes#136423);
//   - with the experimental names of two flags of etcd, which mean the same (etcd-io/etcd#19959).
func AsOlder(made, have *corev1.Pod) *corev1.Pod {
	older := made.DeepCopy()
	switch made.Name {
	case ControllerManagerName:
		withFlexVolumes(older, have)
	case EtcdName:
		withExperimentalFlags(older, have)
	}
	return older
}

func withFlexVolumes(made, have *corev1.Pod) {
	mine, c := &have.Spec.Containers[0], &made.Spec.Containers[0]
	v, err := version.ParseSemantic(mine.Image[strings.LastIndex(mine.Image, ":")+1:])
	if err != nil || v.AtLeast(version.MajorMinor(1, 36)) {
		return
	}
	dir := cmp.Or(FlagOf(made, "flex-volume-plugin-dir"), "/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
	m := mount{FlexVolume, dir, dir, false, corev1.HostPathDirectoryOrCreate}
	if m.isIn(mine) && !m.isIn(c) {
		c.VolumeMounts = append(c.VolumeMounts, m.volumeMount())
		made.Spec.Volumes = append(made.Spec.Volumes, m.volume())
	}
}

// olderFlags maps words of etcd's command line to the words that older releases wrote.
func olderFlags() map[string]string {
	return map[string]string{
		"--feature-gates=InitialCorruptCheck=true": "--experimental-initial-corrupt-check=true",
		"--watch-progress-notify-interval=5s":      "--experimental-watch-progress-notify-interval=5s",
	}
}

// OnlyOlder reports whether only older releases wrote a flag (without dashes) into a component's static Pod. An upgrade drops it.
func OnlyOlder(component, flag string) bool {
	if component != EtcdName {
		return false
	}
	for _, before := range olderFlags() {
		if strings.HasPrefix(before, "--"+flag+"=") {
			return true
		}
	}
	return false
}

func withExperimentalFlags(made, have *corev1.Pod) {
	command := made.Spec.Containers[0].Command
	for now, before := range olderFlags() {
		if i := slices.Index(command, now); i >= 0 && slices.Contains(have.Spec.Containers[0].Command, before) {
			command[i] = before
		}
	}
}
