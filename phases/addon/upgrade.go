// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// PhaseName is the name of the phases that Install and Upgrade return.
const PhaseName = "addon"

// addonCondition makes an add-on's upgrade depend on a condition.
type addonCondition = func(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error

// Upgrade is the phase addon of an upgrade. when wraps the upgrade of each add-on in the condition for it.
func Upgrade(when addonCondition) step.Phase {
	flags := []string{"config", "dry-run", "kubeconfig", "patches"}
	return step.Phase{
		Name:       PhaseName,
		Summary:    "Upgrade the cluster's DNS, service proxy and Pod network, once all control planes have the new version",
		Flags:      flags,
		SideBySide: true,
		Skip:       node.UnlessControlPlane,
		Children: []step.Phase{
			{
				Name:    "coredns",
				Summary: "Upgrade CoreDNS",
				Flags:   flags,
				Run:     when(coreDNSTitle, upgradeCoreDNS),
				Skip:    dnsDisabled,
			},
			{
				Name:    "kube-proxy",
				Summary: "Upgrade kube-proxy",
				Flags:   flags,
				Run:     when(manifests.KubeProxyName, upgradeKubeProxy),
				Skip:    ProxyDisabled,
			},
			{
				Name:    "network",
				Summary: "Upgrade flannel, if `init --network flannel` has installed it",
				Flags:   flags,
				Run:     when("the Pod network", upgradeNetwork),
			},
		},
	}
}

// WhenAllUpgraded runs upgrade only when all control planes have the new version: the last of them upgrades the shared add-ons.
func WhenAllUpgraded(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return func(ctx context.Context, env *step.Env) error {
		if err := env.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		behind, _, err := ControlPlanesBehind(ctx, env)
		if err != nil {
			return err
		}
		if len(behind) > 0 {
			env.UI.Printf("Leaving %s as it is: the last control plane to be upgraded to %s upgrades it, too. Not upgraded yet: %s",
				name, env.Config.Cluster.KubernetesVersion, strings.Join(behind, ", "))
			return nil
		}
		return upgrade(ctx, env)
	}
}

// Always runs upgrade whatever version the other control planes have.
func Always(_ string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return upgrade
}

type addonObjects = func(*config.Node, config.PatchSet) ([]manifests.Object, error)

// Versions returns an add-on's objects in the old version, and in the new version with and without the user's patches. They
// depend only on the configuration, so they're the same on each control plane. A change of the configuration takes both as they
// are, and an upgrade takes generated settings.
func Versions(env *step.Env, objects addonObjects) ([]cluster.Versions, error) {
	patches, err := env.Patches()
	if err != nil {
		return nil, err
	}
	before, newer := env.Config.Upgrade.Before, env.Config
	if before == nil {
		before, newer = newer.GeneratedFor(newer.Upgrade.From), newer.GeneratedFor(newer.Cluster.KubernetesVersion)
	}
	older, err := objects(before, config.PatchSet{})
	if err != nil {
		return nil, err
	}
	plain, err := objects(newer, config.PatchSet{})
	if err != nil {
		return nil, err
	}
	wanted, err := objects(newer, patches)
	if err != nil {
		return nil, err
	}
	list := make([]cluster.Versions, len(wanted))
	for i := range wanted {
		list[i] = cluster.Versions{Old: older[i], New: wanted[i], Plain: plain[i]}
	}
	return list, nil
}

// UpgradeObjects brings an add-on's objects to their new versions, workloads last. Missing objects are created, and edits stay.
// phase is the phase of init that would replace them.
func UpgradeObjects(ctx context.Context, env *step.Env, phase string, list []cluster.Versions) error {
	for _, workloads := range []bool{false, true} {
		for _, v := range list {
			if (podTemplate(v.New) != nil) != workloads {
				continue
			}
			if err := upgradeObject(ctx, env, phase, v); err != nil {
				return err
			}
		}
	}
	return nil
}

func upgradeObject(ctx context.Context, env *step.Env, phase string, v cluster.Versions) error {
	live := v.New.DeepCopyObject().(cluster.Object)
	changed := false
	found, err := env.Cluster.Update(ctx, live, func() (_ bool, err error) {
		changed, err = cluster.Merge(live, followImages(env.Config, v, live))
		return changed, err
	})
	switch {
	case err != nil:
		return err
	case !found:
		return env.Cluster.Ensure(ctx, v.New)
	}
	if changed && podTemplate(live) != nil {
		reportRollout(env, live)
	}
	d, err := env.Cluster.Compare(ctx, v.New)
	if err == nil && d.Change == cluster.Update {
		env.Keeper().SayKept(v.New, d, fmt.Sprintf("to replace it, run `slipway init phase %s` with the cluster's configuration (--config)", phase))
	}
	return err
}

// reportRollout says how to watch a workload's Pods being replaced. Nothing waits for all of them: that takes longer the more nodes
// there are, and some may be down.
func reportRollout(env *step.Env, workload cluster.Object) {
	kind := strings.ToLower(reflect.TypeOf(workload).Elem().Name())
	ui.SayEffect(env.UI, ui.Effect{
		Text:     "The Pods of " + workload.GetName() + " are being replaced",
		Restarts: []string{reflect.TypeOf(workload).Elem().Name() + " " + workload.GetNamespace() + "/" + workload.GetName()},
	})
	env.UI.Nextf("See when the Pods of %s have been replaced: `kubectl -n %s rollout status %s/%s`",
		workload.GetName(), workload.GetNamespace(), kind, workload.GetName())
}

// mergedWith returns a workload as its upgrade makes it.
func mergedWith[T cluster.Object](n *config.Node, live T, v cluster.Versions) (T, error) {
	upgraded := live.DeepCopyObject().(T)
	_, err := cluster.Merge(upgraded, followImages(n, v, live))
	return upgraded, err
}

// followImages returns versions of a workload in which its images count as an earlier run's, whatever their tags, if they come
// from the same repository: tools and patch releases choose different tags. An image from another repository is an operator's, and so
// is one with another tag if a change of the configuration leaves the image as it was.
func followImages(n *config.Node, v cluster.Versions, live cluster.Object) cluster.Versions {
	if podTemplate(live) == nil {
		return v
	}
	v.Old = v.Old.DeepCopyObject().(cluster.Object)
	older, plain, there := &podTemplate(v.Old).Spec, &podTemplate(v.Plain).Spec, &podTemplate(live).Spec
	if n.Upgrade.Before == nil {
		plain = &corev1.PodSpec{}
	}
	followContainers(older.InitContainers, plain.InitContainers, there.InitContainers)
	followContainers(older.Containers, plain.Containers, there.Containers)
	return v
}

// followContainers leaves images alone that are the same in older and plain.
func followContainers(older, plain, there []corev1.Container) {
	for i := range older {
		c := &older[i]
		if manifests.ContainerImage(plain, c.Name) == c.Image {
			continue
		}
		for _, l := range there {
			if l.Name == c.Name && (sameRepository(l.Image, c.Image) || strings.HasPrefix(l.Image, config.DefaultImageRepository+"/")) {
				c.Image = l.Image
			}
		}
	}
}

func sameRepository(a, b string) bool {
	mine, _ := manifests.SplitImage(a)
	other, _ := manifests.SplitImage(b)
	return mine == other
}

// podTemplate returns a workload's Pod template, or nil for other objects.
func podTemplate(obj cluster.Object) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	}
	return nil
}
