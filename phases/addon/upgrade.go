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
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

const PhaseName = "addon"

// addonCondition makes the upgrade of an add-on depend on a condition.
type addonCondition = func(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error

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
				Run:     when("CoreDNS", upgradeCoreDNS),
				Skip:    func(env *step.Env) string { return node.Disabled(env.Config.Cluster.DNS.Disabled, "dns.disabled") },
			},
			{
				Name:    "kube-proxy",
				Summary: "Upgrade kube-proxy",
				Flags:   flags,
				Run:     when("kube-proxy", upgradeKubeProxy),
				Skip:    func(env *step.Env) string { return node.Disabled(env.Config.Cluster.Proxy.Disabled, "proxy.disabled") },
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

// OnceUpgraded runs upgrade only when all control planes have the new version: the last of them upgrades what all share.
func OnceUpgraded(name string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return func(ctx context.Context, env *step.Env) error {
		if err := env.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		behind, err := ControlPlanesBehind(ctx, env)
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

// Regardless of other control planes, an add-on is upgraded.
func Regardless(_ string, upgrade func(context.Context, *step.Env) error) func(context.Context, *step.Env) error {
	return upgrade
}

// addonObjects makes the objects of an add-on.
type addonObjects = func(*config.Node, config.PatchSet) ([]manifests.Object, error)

// Versions are the objects of an add-on as the old version has them, and as the new one does with and without the
// user's patches. They depend on the configuration alone, so they are the same on each control plane.
func Versions(env *step.Env, objects addonObjects) ([]cluster.Versions, error) {
	patches, err := env.Patches()
	if err != nil {
		return nil, err
	}
	older, err := objects(env.Config.GeneratedFor(env.Config.Upgrade.From), config.PatchSet{})
	if err != nil {
		return nil, err
	}
	newer := env.Config.GeneratedFor(env.Config.Cluster.KubernetesVersion)
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

// UpgradeObjects brings the objects of an add-on to their new versions, workloads last. What is missing is created, and
// what was edited stays. phase is the one of init that replaces it.
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
		changed, err = cluster.Merge(live, followImages(v, live))
		return changed, err
	})
	switch {
	case err != nil:
		return err
	case !found:
		return env.Cluster.Ensure(ctx, v.New)
	}
	if changed && podTemplate(live) != nil {
		sayRollout(env, live)
	}
	d, err := env.Cluster.Compare(ctx, v.New)
	if err == nil && d.Change == cluster.Update {
		env.Keeper().SayKept(v.New, d, fmt.Sprintf("to replace it, run `slipway init phase %s`", phase))
	}
	return err
}

// sayRollout says how to see that the Pods of a workload are replaced. Nothing waits for it: that takes as long as there
// are nodes, and some of these may be down.
func sayRollout(env *step.Env, workload cluster.Object) {
	kind := strings.ToLower(reflect.TypeOf(workload).Elem().Name())
	env.UI.Printf("The Pods of %s are being replaced", workload.GetName())
	env.UI.Nextf("See when the Pods of %s have been replaced: `kubectl -n %s rollout status %s/%s`",
		workload.GetName(), workload.GetNamespace(), kind, workload.GetName())
}

// followImages returns versions of a workload by which its images count as made by an earlier run, whichever tag they
// have, if they are of the same repository: tools and patch releases differ in the tags that they choose. An image of
// another repository is an operator's.
func followImages(v cluster.Versions, live cluster.Object) cluster.Versions {
	if podTemplate(live) == nil {
		return v
	}
	v.Old = v.Old.DeepCopyObject().(cluster.Object)
	older, there := &podTemplate(v.Old).Spec, &podTemplate(live).Spec
	followContainers(older.InitContainers, there.InitContainers)
	followContainers(older.Containers, there.Containers)
	return v
}

func followContainers(older, there []corev1.Container) {
	for i := range older {
		c := &older[i]
		for _, l := range there {
			if l.Name == c.Name && (sameRepository(l.Image, c.Image) || strings.HasPrefix(l.Image, config.DefaultImageRepository+"/")) {
				c.Image = l.Image
			}
		}
	}
}

func sameRepository(a, b string) bool {
	mine, _ := upgrading.SplitImage(a)
	other, _ := upgrading.SplitImage(b)
	return mine == other
}

// podTemplate is what a workload makes its Pods from; nil for other objects.
func podTemplate(obj cluster.Object) *corev1.PodTemplateSpec {
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	}
	return nil
}
