// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// staticPod wants path to be free or to hold exactly what this run would
// write. wanted is empty where this run would write nothing.
func staticPod(path, component string, wanted []byte) func(context.Context, View) []Finding {
	return whereThere(path, func(_ View, have []byte) []Finding {
		switch {
		case len(wanted) == 0:
			return fault("%s is there, and this configuration has no such static Pod: move it away, or run `slipway reset` first if it is what is left of an old cluster", path)
		case bytes.Equal(have, wanted):
			return note("%s is in place", path)
		}
		difference, ours := compare(component, have, wanted)
		if !ours {
			return fault("%s is there, and is not a static Pod of %s: move it away", path, component)
		}
		return fault("%s differs from what this configuration makes: %s. An edit stays, once the API server answers and the cluster keeps this configuration (a plan asks with --diff). "+
			"If it is left from a run with another configuration, use that one; `slipway reset` starts over, and deletes this node's data", path, difference)
	})
}

// whereThere judges a file that may be missing.
func whereThere(path string, judge func(h View, have []byte) []Finding) func(context.Context, View) []Finding {
	return func(_ context.Context, h View) []Finding {
		have, err := h.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			return fault("%s is there and cannot be read: run as root", path)
		case err != nil:
			return fault("%s is there and cannot be read: %v; move it away", path, err)
		}
		return judge(h, have)
	}
}

// compare says in which arguments and images two static Pods of a component
// differ. Values of environment variables may be secret and are left out.
func compare(component string, have, wanted []byte) (difference string, ours bool) {
	old, err := containerOf(component, have)
	if err != nil {
		return "", false
	}
	asked, err := containerOf(component, wanted)
	if err != nil {
		return "", false
	}
	var parts []string
	if old.Image != asked.Image {
		parts = append(parts, fmt.Sprintf("image %s there, %s asked for", old.Image, asked.Image))
	}
	if gone := without(old.Command, asked.Command); len(gone) > 0 {
		parts = append(parts, "there only: "+strings.Join(gone, " "))
	}
	if missing := without(asked.Command, old.Command); len(missing) > 0 {
		parts = append(parts, "asked for only: "+strings.Join(missing, " "))
	}
	if len(parts) == 0 {
		parts = append(parts, "volumes, environment, probes, resources or the form of the file differ")
	}
	return strings.Join(parts, "; "), true
}

// IsStaticPod reports whether manifest is a static Pod of a component, edited or
// not.
func IsStaticPod(component string, manifest []byte) bool {
	_, err := containerOf(component, manifest)
	return err == nil
}

func containerOf(component string, manifest []byte) (corev1.Container, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return corev1.Container{}, errors.New("not a Pod") // the parser's words may quote the file
	}
	if pod.Name != component || pod.Namespace != "kube-system" || len(pod.Spec.Containers) != 1 {
		return corev1.Container{}, errors.Errorf("not a static Pod of %s", component)
	}
	return pod.Spec.Containers[0], nil
}

// without returns those of list that other lacks.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}
