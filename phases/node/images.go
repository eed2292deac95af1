// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// NewPatchedImagesCheck is the check that today's patches give no component an image of another version of Kubernetes.
func NewPatchedImagesCheck(env *step.Env) preflight.Check {
	return preflight.Check{Name: "PatchedImages", Description: "no patch gives a component an image of another version", Run: func(context.Context, preflight.View) []fault.Finding {
		if _, err := Replacements(env); err != nil {
			return nil // the check for edits reports it
		}
		if err := RefuseOtherVersions(env); err != nil {
			f := fault.Of(err)
			f.Final = true // the phase refuses it, too
			return []fault.Finding{f}
		}
		return nil
	}}
}

// RefuseOtherVersions fails if a patch gives a component an image of another version of Kubernetes: the component would skip a minor
// version, stay behind while an upgrade succeeds, or go back with a change of the configuration. A tag's suffix may name an operator's
// own build of the version.
func RefuseOtherVersions(env *step.Env) error {
	list, err := Replacements(env)
	if err != nil {
		return err
	}
	patches, err := env.Patches()
	if err != nil {
		return err
	}
	target, err := version.ParseSemantic(env.Config.Cluster.KubernetesVersion)
	if err != nil {
		return err
	}
	for _, c := range list {
		image := manifests.ImageOf(c.Wanted)
		have, err := manifests.TagVersion(manifests.TagOf(image))
		if c.Name == manifests.EtcdName || err != nil || slices.Equal(have.Components(), target.Components()) {
			continue
		}
		return fault.New(fmt.Sprintf("%s in %s gives %s the image %s, but this run sets up version v%s",
			strings.Join(patches.FilesWith(c.Name, image), ", "), env.Config.PatchesDir, c.Name, image, target),
			"change the tag of this image to v"+target.String()+", or remove it from the patch; `slipway upgrade plan` without --patches prints patches for the edits on this host")
	}
	return nil
}

// Images returns the images this node needs. Before a change of a control plane, the static Pods' images are those to be written, with
// today's patches.
func Images(env *step.Env) ([]string, error) {
	n := env.Config
	if n.Upgrade == nil || !n.ControlPlane {
		return n.Images(), nil
	}
	list, err := Replacements(env)
	if err != nil {
		return nil, err
	}
	images := n.Images()
	for _, c := range list {
		pod, err := manifests.DecodePod(c.Wanted)
		if err != nil {
			return nil, errors.WithMessage(err, c.Name)
		}
		var own []string
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			if !slices.Contains(images, container.Image) || container.Image == n.Image(c.Name) {
				own = append(own, container.Image)
			}
		}
		i := slices.Index(images, n.Image(c.Name))
		images = slices.Replace(images, i, i+1, own...)
	}
	return images, nil
}
