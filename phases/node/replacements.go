// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Outdated returns the components whose manifest or containers have to change, etcd first.
func Outdated(ctx context.Context, env *step.Env) ([]Replacement, error) {
	list, err := Replacements(env)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Stale, err = outdatedContainers(ctx, env, list[i].Name); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(list, func(c Replacement) bool {
		return manifests.SameStaticPod(c.Before, c.Wanted) && len(c.Stale) == 0
	}), nil
}

// Replacements returns this control plane's static Pods, now and as an upgrade would write them, etcd's first.
func Replacements(env *step.Env) ([]Replacement, error) {
	view, err := HostView(env)
	if err != nil {
		return nil, err
	}
	var list []Replacement
	for _, name := range Replaceable(env) {
		c := Replacement{Name: name}
		if c.Before, err = host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(name)); err != nil {
			return nil, err
		}
		if c.Wanted, err = StaticPodYAML(env, name, view, InitialMembers(env, name)); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// Replaceable names the components that an upgrade may replace: all of this control plane, or all but etcd.
func Replaceable(env *step.Env) []string {
	return slices.DeleteFunc(manifests.Components(env.Config), func(name string) bool {
		return name == manifests.EtcdName && !env.Config.Upgrade.Etcd
	})
}

// InitialMembers returns the members in the flags that this node's etcd started with. They stay, though they mean nothing by now.
func InitialMembers(env *step.Env, component string) []manifests.Member {
	pod, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(component))
	if !found || component != manifests.EtcdName {
		return nil
	}
	member, _ := manifests.ReadEtcd(pod)
	if !member.Joined {
		return nil
	}
	return member.Initial
}

// outdatedContainers returns the component's containers that are older than its manifest.
func outdatedContainers(ctx context.Context, env *step.Env, component string) ([]host.Container, error) {
	info, err := env.Host.Lstat(env.Config.Paths.StaticPod(component))
	if err != nil {
		return nil, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool { return !c.Created.Before(info.ModTime()) }), err
}

// RunningVersion is the version of this node's API server, from its static Pod, or else from the cluster's configuration.
func RunningVersion(env *step.Env) string {
	manifest, _ := env.Host.ReadFile(env.Config.Paths.StaticPod(manifests.APIServerName))
	version, _ := upgrading.VersionOf(manifest)
	return cmp.Or(version, env.Config.Upgrade.From)
}

// CompareRunning reports whether a component runs with a manifest. If it doesn't run, it may have crashed in an interrupted run; a
// swap makes the kubelet start it without delay.
func CompareRunning(ctx context.Context, env *step.Env, name string, wanted []byte) (c Replacement, right bool, err error) {
	c.Name, c.Wanted = name, wanted
	path := env.Config.Paths.StaticPod(name)
	if c.Before, err = host.ReadIfExists(env.Host, path); err != nil || c.Before == nil {
		return c, false, err
	}
	info, err := env.Host.Lstat(path)
	if err != nil {
		return c, false, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, name)
	if err != nil {
		return c, false, err
	}
	fresh := slices.ContainsFunc(running, func(c host.Container) bool { return !c.Created.Before(info.ModTime()) })
	return c, fresh && manifests.SameStaticPod(c.Before, c.Wanted), nil
}
