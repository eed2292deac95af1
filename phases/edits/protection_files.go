// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"io/fs"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// shortened reports whether others, the flags of the same name, have only some of f's guards.
func shortened(f manifests.Flag, others []manifests.Flag) bool {
	if len(others) == 0 || !slices.Contains([]string{"authorization-mode", "enable-admission-plugins"}, f.Name) {
		return false
	}
	var left []string
	for _, other := range others {
		left = append(left, strings.Split(other.Value, ",")...)
	}
	return slices.ContainsFunc(strings.Split(f.Value, ","), func(guard string) bool { return !slices.Contains(left, guard) })
}

// flagsReplaced reports whether patches have changed the flags of one name. Adding a value of a repeatable flag is no change.
func flagsReplaced(plain, patched []manifests.Flag) bool {
	repeats := []string{"oidc-required-claim", "service-account-issuer", "service-account-key-file", "tls-sni-cert-key"}
	if len(plain) > 0 && slices.Contains(repeats, plain[0].Name) {
		return slices.ContainsFunc(plain, func(f manifests.Flag) bool { return !slices.ContainsFunc(patched, f.Same) })
	}
	return !slices.EqualFunc(plain, patched, manifests.Flag.Same)
}

// hasMount reports whether a Pod has the mount m of another Pod, of, with the same host path.
func hasMount(pod, of *corev1.Pod, m corev1.VolumeMount) bool {
	return slices.ContainsFunc(pod.Spec.Containers[0].VolumeMounts, func(other corev1.VolumeMount) bool {
		return path.Clean(other.MountPath) == path.Clean(m.MountPath) && equality.Semantic.DeepEqual(hostPath(pod, other.Name), hostPath(of, m.Name))
	})
}

// hostPath returns a volume's path on the host; empty for other kinds.
func hostPath(pod *corev1.Pod, volume string) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == volume && v.HostPath != nil {
			return path.Clean(v.HostPath.Path)
		}
	}
	return ""
}

// maxFiles bounds the files that filesOf finds.
const maxFiles = 100

// filesOf returns the paths in a component's container that flags name, and the paths in those files in turn: an
// EncryptionConfiguration names sockets, an AdmissionConfiguration names kubeconfig files, and these name certificates.
func filesOf(env *step.Env, pod *corev1.Pod, flags []manifests.Flag) []string {
	var files []string
	add := func(text string) {
		text = strings.TrimPrefix(text, "unix://")
		if path.IsAbs(text) && !slices.Contains(files, text) && len(files) < maxFiles {
			files = append(files, text)
		}
	}
	for _, f := range flags {
		add(f.Value)
	}
	for i := 0; i < len(files); i++ {
		at := thisnode.OnHostOr(pod, files[i])
		if info, err := env.Host.Stat(at); err != nil || info.Mode().Type()&fs.ModeType != 0 || info.Size() > inventory.LargestFile {
			continue
		}
		data, err := env.Host.ReadFile(at)
		var document any
		if err == nil && yaml.Unmarshal(data, &document) == nil {
			eachText(document, add)
		}
	}
	return files
}

func eachText(value any, take func(string)) {
	switch v := value.(type) {
	case string:
		take(v)
	case []any:
		for _, item := range v {
			eachText(item, take)
		}
	case map[string]any:
		for _, item := range v {
			eachText(item, take)
		}
	}
}
