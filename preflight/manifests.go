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

	"github.com/slipway-k8s/slipway/internal/fault"
)

// staticPod checks that path doesn't exist or holds exactly this run's manifest. wanted is empty if this run wouldn't write it.
func staticPod(path, component string, wanted []byte) func(context.Context, View) []fault.Finding {
	return ifPresent(path, func(_ View, have []byte) []fault.Finding {
		switch {
		case len(wanted) == 0:
			return fail("%s exists, but this configuration has no such static Pod", path).
				remedy("move it away; if it is left from an old cluster, run `slipway reset` first")
		case bytes.Equal(have, wanted):
			return note("%s is in place", path)
		}
		difference, ours := compare(component, have, wanted)
		if !ours {
			return notStaticPod(path, component)
		}
		return fail("%s differs from what this configuration makes: %s", path, difference).remedy(KeepOrReset)
	})
}

// KeepOrReset is the remedy if an earlier run's result differs from this configuration's.
const KeepOrReset = "if you edited it, run the command again once the API server answers: an edit stays if the cluster has this configuration " +
	"(a plan needs --diff to ask). If it is from a run with another configuration, use that one. `slipway reset` starts over, and deletes this node's data"

func notStaticPod(path, component string) []fault.Finding {
	return fail("%s exists, but is not a static Pod of %s", path, component).remedy("move it away")
}

// ifPresent runs a check on a file unless it's missing.
func ifPresent(path string, judge func(h View, have []byte) []fault.Finding) func(context.Context, View) []fault.Finding {
	return func(_ context.Context, h View) []fault.Finding {
		have, err := h.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, fs.ErrPermission):
			return fail("%s exists, but cannot be read", path).remedy("run as root")
		case err != nil:
			return fail("%s exists, but cannot be read: %v", path, err).remedy("move it away")
		}
		return judge(h, have)
	}
}

// OnlyThere and OnlyAsked begin the two parts of a difference.
const (
	OnlyThere = "only there: "
	OnlyAsked = "only in this configuration: "
)

// compare describes how the arguments and images of a component's two static Pods differ. It leaves out environment variables,
// whose values may be secret. ours is false unless both are static Pods of the component.
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
		parts = append(parts, fmt.Sprintf("its image is %s instead of %s", old.Image, asked.Image))
	}
	if gone := without(old.Command, asked.Command); len(gone) > 0 {
		parts = append(parts, OnlyThere+strings.Join(gone, " "))
	}
	if missing := without(asked.Command, old.Command); len(missing) > 0 {
		parts = append(parts, OnlyAsked+strings.Join(missing, " "))
	}
	if len(parts) == 0 {
		parts = append(parts, "volumes, environment, probes, resources or formatting")
	}
	return strings.Join(parts, "; "), true
}

// IsStaticPod reports whether manifest is a static Pod of a component, edited or not.
func IsStaticPod(component string, manifest []byte) bool {
	_, err := containerOf(component, manifest)
	return err == nil
}

func containerOf(component string, manifest []byte) (corev1.Container, error) {
	var pod corev1.Pod
	if err := yaml.Unmarshal(manifest, &pod); err != nil {
		return corev1.Container{}, errors.New("not a Pod") // the parser's error may quote the file
	}
	if pod.Name != component || pod.Namespace != "kube-system" || len(pod.Spec.Containers) != 1 {
		return corev1.Container{}, errors.Errorf("not a static Pod of %s", component)
	}
	return pod.Spec.Containers[0], nil
}

func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}
