// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ControlPlanesBehind names the control planes whose API servers aren't known to have the configured version yet, with the reason for
// each. older reports whether one of them certainly has an older version. Like kubeadm, it looks at the images of the API servers' Pods.
func ControlPlanesBehind(ctx context.Context, env *step.Env) (behind []string, older bool, err error) {
	servers, err := APIServers(ctx, env)
	if err != nil {
		return nil, false, err
	}
	for _, node := range slices.Sorted(maps.Keys(servers)) {
		why, certain := outdatedReason(servers[node], env.Config.Cluster.KubernetesVersion)
		if older = older || certain; why != "" {
			behind = append(behind, node+" ("+why+")")
		}
	}
	return behind, older, nil
}

// APIServers returns the API servers' Pods by node name, with nil for unknown Pods. This node's static Pod is more current than
// its mirror in the API.
func APIServers(ctx context.Context, env *step.Env) (map[string]*corev1.Pod, error) {
	servers, err := MirroredServers(ctx, env)
	if err != nil {
		return nil, err
	}
	if own, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName)); found {
		servers[env.Config.Name] = own
	}
	return servers, nil
}

// MirroredServers returns the API servers' Pods from the API by control plane name, with nil for missing Pods.
func MirroredServers(ctx context.Context, env *step.Env) (map[string]*corev1.Pod, error) {
	pods, err := env.Cluster.Pods(ctx, metav1.NamespaceSystem, "component="+manifests.APIServerName)
	if err != nil {
		return nil, err
	}
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	servers := map[string]*corev1.Pod{}
	planes := cluster.ControlPlanesOf(nodes)
	if env.Config.ControlPlane {
		planes.Count(nodes, env.Config.Name)
	}
	for name := range planes {
		servers[name] = nil
	}
	own, _ := planes.Pods(pods)
	for i := range own {
		servers[own[i].Spec.NodeName] = &own[i]
	}
	return servers, nil
}

// outdatedReason says why an API server doesn't have the wanted or a newer version; empty if it does. Only an earlier release is
// certain, because a tag's suffix may name an operator's own build.
func outdatedReason(server *corev1.Pod, wanted string) (why string, certain bool) {
	if server == nil {
		return "its kube-apiserver Pod is not in the API", false
	}
	image := manifests.ContainerImage(server.Spec.Containers, manifests.APIServerName)
	if image == "" {
		return "its kube-apiserver Pod has no container of that name", false
	}
	tag := manifests.TagOf(image)
	runs, err := manifests.TagVersion(tag)
	if err != nil {
		return "the version of " + image + " is unknown", false
	}
	if next := version.MustParseSemantic(wanted); runs.LessThan(next) {
		return "runs " + tag, slices.Compare(runs.Components(), next.Components()) < 0
	}
	return "", false
}
