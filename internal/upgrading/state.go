// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/manifests"
)

// State is the state of a cluster. Versions are images' tags, as they are; empty if there's no such component.
type State struct {
	// Stored is the ClusterConfiguration, as YAML. Configured is its version.
	Stored     []byte
	Configured string
	// Nodes are sorted by name, Components in the order of tableOrder and by node.
	Nodes              []NodeVersions
	Components         []Component
	KubeProxy, CoreDNS string
	Corefile           string // CoreDNS's configuration, empty if its ConfigMap has none
	// Pods are the static Pods of the control planes, Hosts the Nodes. Strays are Pods on other Nodes that look like static Pods.
	Pods, Strays []corev1.Pod
	Hosts        []corev1.Node
	// KubeletConfig and KubeProxyConfig are the API versions of the stored configurations, such as v1beta1.
	KubeletConfig, KubeProxyConfig string
}

// Component is a static Pod of a control plane.
type Component struct{ Name, Node, Version string }

// Look asks the API for the cluster's state, with all requests side by side.
func Look(ctx context.Context, api cluster.Cluster) (*State, error) {
	s := &State{}
	var nodes []corev1.Node
	var pods []corev1.Pod
	group, ctx := errgroup.WithContext(ctx)
	ask := func(question func() error) { group.Go(question) }
	ask(func() (err error) { s.Stored, err = joining.StoredConfiguration(ctx, api); return err })
	ask(func() (err error) { nodes, err = api.Nodes(ctx); return err })
	ask(func() (err error) {
		pods, err = api.Pods(ctx, metav1.NamespaceSystem, "tier=control-plane")
		return err
	})
	ask(func() (err error) {
		s.KubeletConfig, err = storedAPI(ctx, api, manifests.KubeletConfigMap, "kubelet")
		return err
	})
	ask(func() (err error) {
		s.KubeProxyConfig, err = storedAPI(ctx, api, manifests.KubeProxyConfigMap, "config.conf")
		return err
	})
	s.addOns(ctx, api, ask)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var err error
	s.Configured, err = config.StoredVersion(s.Stored)
	s.take(cluster.ControlPlanesOf(nodes), nodes, pods)
	return s, err
}

func (s *State) addOns(ctx context.Context, api cluster.Cluster, ask func(func() error)) {
	ask(func() (err error) {
		s.Corefile, err = cluster.ConfigMapText(ctx, api, metav1.NamespaceSystem, manifests.CorefileMap, manifests.CorefileKey)
		return err
	})
	ask(func() error {
		set := &appsv1.DaemonSet{TypeMeta: appsType("DaemonSet"), ObjectMeta: inKubeSystem("kube-proxy")}
		found, err := api.Get(ctx, set)
		if found {
			s.KubeProxy = tagIn(set.Spec.Template.Spec, "kube-proxy")
		}
		return err
	})
	ask(func() error {
		deployment := &appsv1.Deployment{TypeMeta: appsType("Deployment"), ObjectMeta: inKubeSystem("coredns")}
		found, err := api.Get(ctx, deployment)
		if found {
			s.CoreDNS = tagIn(deployment.Spec.Template.Spec, "coredns")
		}
		return err
	})
}

func appsType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: "apps/v1", Kind: kind}
}

func inKubeSystem(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
}

// storedAPI returns the API version of a stored configuration; empty if that's missing or unreadable.
func storedAPI(ctx context.Context, api cluster.Cluster, name, key string) (string, error) {
	text, err := cluster.ConfigMapText(ctx, api, metav1.NamespaceSystem, name, key)
	var doc metav1.TypeMeta
	if err != nil || yaml.Unmarshal([]byte(text), &doc) != nil {
		return "", err
	}
	_, v, _ := strings.Cut(doc.APIVersion, "/")
	return v, nil
}

// tableOrder is the order of a control plane's components in a plan.
func tableOrder() []string {
	return []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName, manifests.EtcdName}
}

// Count counts this host's Node, which has an API server's static Pod, as a control plane even without the label.
func (s *State) Count(own string) {
	planes := cluster.ControlPlanesOf(s.Hosts)
	planes.Count(s.Hosts, own)
	s.take(planes, s.Hosts, slices.Concat(s.Pods, s.Strays))
}

func (s *State) take(planes cluster.ControlPlanes, nodes []corev1.Node, pods []corev1.Pod) {
	s.Hosts, s.Components, s.Nodes = nodes, nil, nil
	s.Pods, s.Strays = planes.Pods(slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.Spec.NodeName == "" || !slices.Contains(tableOrder(), pod.Labels["component"])
	}))
	for _, pod := range s.Pods {
		name := pod.Labels["component"]
		s.Components = append(s.Components, Component{Name: name, Node: pod.Spec.NodeName, Version: tagIn(pod.Spec, name)})
	}
	slices.SortStableFunc(s.Components, func(a, b Component) int {
		return cmp.Or(slices.Index(tableOrder(), a.Name)-slices.Index(tableOrder(), b.Name), cmp.Compare(a.Node, b.Node))
	})
	for i := range nodes {
		node := &nodes[i]
		n := NodeVersions{Name: node.Name, ControlPlane: planes[node.Name] != nil, Kubelet: node.Status.NodeInfo.KubeletVersion,
			Runtime: node.Status.NodeInfo.ContainerRuntimeVersion}
		for _, c := range s.Components {
			if c.Node == node.Name && c.Name == manifests.APIServerName {
				n.APIServer = exact(c.Version)
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
}

func tagIn(pod corev1.PodSpec, container string) string {
	return manifests.TagOf(manifests.ContainerImage(pod.Containers, container))
}

// exact returns a tag as a version with a leading v; empty if it isn't a version.
func exact(tag string) string {
	v, err := manifests.TagVersion(tag)
	if err != nil {
		return ""
	}
	return "v" + v.String()
}
