// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
)

// pods collects Pods only for rules about the kubelets of 1.36 and 1.37.
func (c *collector) pods(ctx context.Context) {
	c.staticPodsHere()
	c.inputs.Cluster.SELinux = c.enforcesSELinux()
	if !crosses(c.oldest, "1.37") {
		return
	}
	planes := cluster.ControlPlanesOf(c.State.Hosts)
	c.inputs.Cluster.Pods = listed[corev1.Pod](ctx, c, "/api/v1/pods", "Pods")
	for _, pod := range c.inputs.Cluster.Pods {
		if cluster.IsMirror(&pod) && (c.Here == nil || pod.Spec.NodeName != c.Here.Node.Name) {
			c.inputs.StaticPods = append(c.inputs.StaticPods, breakages.StaticPod{
				Where: "static Pod " + pod.Namespace + "/" + pod.Name + " on " + pod.Spec.NodeName, Pod: pod, Reported: planes[pod.Spec.NodeName] == nil})
		}
	}
}

// selinuxSystems lists parts of the names of systems that enforce SELinux by default, at least in some versions.
var selinuxSystems = []string{"Red Hat", "CentOS", "Fedora", "Rocky", "AlmaLinux", "Oracle Linux", "Amazon Linux", "SUSE"}

// enforcesSELinux reports whether a node enforces SELinux, as far as possible: on other nodes it goes by the system's name.
func (c *collector) enforcesSELinux() bool {
	if c.Here != nil {
		if text, err := c.Here.Host.ReadFile("/sys/fs/selinux/enforce"); err == nil && strings.TrimSpace(string(text)) == "1" {
			return true
		}
	}
	return slices.ContainsFunc(c.State.Hosts, func(n corev1.Node) bool {
		other := c.Here == nil || c.Here.Node.Name != n.Name
		return other && slices.ContainsFunc(selinuxSystems, func(name string) bool { return strings.Contains(n.Status.NodeInfo.OSImage, name) })
	})
}

// roles collects roles only for a rule about the API server of 1.35.
func (c *collector) roles(ctx context.Context) {
	if !crosses(c.from, "1.35") {
		return
	}
	c.inputs.Cluster.Roles = listed[rbacv1.Role](ctx, c, "/apis/rbac.authorization.k8s.io/v1/roles", "Roles")
	c.inputs.Cluster.ClusterRoles = listed[rbacv1.ClusterRole](ctx, c, "/apis/rbac.authorization.k8s.io/v1/clusterroles", "ClusterRoles")
}

func (c *collector) budgets(ctx context.Context) {
	c.inputs.Cluster.Budgets = listed[policyv1.PodDisruptionBudget](ctx, c, "/apis/policy/v1/poddisruptionbudgets", "PodDisruptionBudgets")
}

// webhooks reads the fields that both kinds share.
func (c *collector) webhooks(ctx context.Context) {
	type configuration struct {
		metav1.ObjectMeta `json:"metadata"`
		Webhooks          []breakages.Webhook `json:"webhooks"`
	}
	for _, kind := range []struct{ name, resource string }{
		{"ValidatingWebhookConfiguration", "validatingwebhookconfigurations"}, {"MutatingWebhookConfiguration", "mutatingwebhookconfigurations"},
	} {
		for _, item := range listed[configuration](ctx, c, "/apis/admissionregistration.k8s.io/v1/"+kind.resource, kind.name+"s") {
			for _, w := range item.Webhooks {
				w.Where = "webhook " + w.Name + " of " + kind.name + " " + item.Name
				c.inputs.Cluster.Webhooks = append(c.inputs.Cluster.Webhooks, w)
			}
		}
	}
}

// customResources leaves out the schemas, which make up most of them.
func (c *collector) customResources(ctx context.Context) {
	type definition struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			Versions []struct {
				Name string `json:"name"`
			} `json:"versions"`
		} `json:"spec"`
		Status struct {
			StoredVersions []string `json:"storedVersions"`
		} `json:"status"`
	}
	for _, crd := range listed[definition](ctx, c, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "CustomResourceDefinitions") {
		r := breakages.CustomResource{Name: crd.Name, Stored: crd.Status.StoredVersions}
		for _, v := range crd.Spec.Versions {
			r.Versions = append(r.Versions, v.Name)
		}
		c.inputs.Cluster.CustomResources = append(c.inputs.Cluster.CustomResources, r)
	}
}

// systemNamespace reads the labels that webhooks select by.
func (c *collector) systemNamespace(ctx context.Context) {
	ns := &corev1.Namespace{}
	ns.Name = metav1.NamespaceSystem
	if _, err := c.API.Get(ctx, ns); err != nil {
		c.gap("namespace kube-system", "labels", "check the API server, and plan again", "the labels of namespace kube-system were not read: %v", err)
	}
	c.inputs.Cluster.SystemLabels = ns.Labels
}

// staticPodsHere reads the files that the kubelet reads.
func (c *collector) staticPodsHere() {
	if c.Here == nil {
		return
	}
	dir := c.Here.Node.Paths.Manifests
	paths, err := host.VisibleFiles(c.Here.Host, dir)
	if err != nil {
		c.gap(dir, dir, "run this as root", "%s was not checked: %v", dir, err)
		return
	}
	for _, path := range paths {
		data, err := host.ReadHead(c.Here.Host, path, LargestFile)
		if err != nil {
			c.gap(path, path, "run this as root", "%s was not checked: %v", path, err)
			continue
		}
		var pod corev1.Pod
		if yaml.Unmarshal(data, &pod) == nil && pod.Kind == "Pod" {
			pod.Spec.NodeName = c.Here.Node.Name
			c.inputs.StaticPods = append(c.inputs.StaticPods, breakages.StaticPod{Where: path, Pod: pod})
		}
	}
}
