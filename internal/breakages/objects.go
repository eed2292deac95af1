// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// Objects are objects in the cluster that an upgrade can break.
type Objects struct {
	Pods         []corev1.Pod
	Roles        []rbacv1.Role
	ClusterRoles []rbacv1.ClusterRole
	Budgets      []policyv1.PodDisruptionBudget
	Webhooks     []Webhook
	// SystemLabels are the labels of namespace kube-system.
	SystemLabels    map[string]string
	CustomResources []CustomResource
	// SELinux is set if a node enforces SELinux.
	SELinux bool
}

// CustomResource has the relevant parts of a CustomResourceDefinition.
type CustomResource struct {
	Name     string
	Versions []string // spec.versions[].name
	Stored   []string // status.storedVersions
}

// pods finds Pods that a newer kubelet treats differently.
func (c *checker) pods() {
	for _, pod := range c.Cluster.Pods {
		if !c.passed(pod.Spec.NodeName) {
			c.gitRepo(pod)
		}
	}
	if c.Cluster.SELinux {
		c.sharedVolumes()
	}
}

func (c *checker) roles() {
	for _, role := range c.Cluster.Roles {
		c.execVerbs("Role "+role.Namespace+"/"+role.Name, role.Rules)
	}
	for _, role := range c.Cluster.ClusterRoles {
		c.execVerbs("ClusterRole "+role.Name, role.Rules)
	}
}

// objects finds obstacles to any upgrade.
func (c *checker) objects() {
	for _, budget := range c.Cluster.Budgets {
		c.budget(budget)
	}
	for _, webhook := range c.Cluster.Webhooks {
		c.webhook(webhook)
	}
	for _, crd := range c.Cluster.CustomResources {
		c.storedVersions(crd)
	}
}

// gitRepo finds Pods with volumes the kubelet refuses, and can't be told to accept (#136400).
func (c *checker) gitRepo(pod corev1.Pod) {
	hasVolume := slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.GitRepo != nil })
	if !hasVolume || !c.reaches("1.36") { // it locks the gate GitRepoVolumeDriver
		return
	}
	where := "Pod " + pod.Namespace + "/" + pod.Name
	c.add(fault.Finding{Name: "gitrepo-volume", Subject: where, Field: "gitRepo",
		Message: fmt.Sprintf("%s has a gitRepo volume, which the kubelet %s does not mount: the Pod will not start again", where, c.release.Minor),
		Remedy:  "clone the repository in an init container, into an emptyDir volume"})
}

// interactive lists the subresources that a WebSocket request opens with GET. They need the verb create from 1.35 on (#134577).
var interactive = []string{"pods/exec", "pods/attach", "pods/portforward"}

func (c *checker) execVerbs(where string, rules []rbacv1.PolicyRule) {
	if !c.reaches("1.35") { // it turns on the gate AuthorizePodWebsocketUpgradeCreatePermission
		return
	}
	var lacking []string
	for _, resource := range interactive {
		if grants(rules, resource, "get") && !grants(rules, resource, "create") {
			lacking = append(lacking, resource)
		}
	}
	if len(lacking) == 0 {
		return
	}
	c.add(fault.Finding{Name: "exec-needs-create", Subject: where, Field: strings.Join(lacking, " "),
		Message: fmt.Sprintf("%s allows only get on %s; from Kubernetes 1.35 on, this takes create", where, strings.Join(lacking, ", ")),
		Remedy:  "add the verb create if its subjects should keep this access"})
}

func grants(rules []rbacv1.PolicyRule, resource, verb string) bool {
	any := "*/" + strings.TrimPrefix(resource, "pods/")
	return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
		return containsAny(rule.APIGroups, "", "*") && containsAny(rule.Resources, resource, any, "*") && containsAny(rule.Verbs, verb, "*")
	})
}

func containsAny(list []string, wanted ...string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return slices.Contains(wanted, s) })
}

// budget finds disruption budgets that keep a drain waiting.
func (c *checker) budget(b policyv1.PodDisruptionBudget) {
	if b.Status.ExpectedPods == 0 || b.Status.DisruptionsAllowed > 0 {
		return
	}
	where := "PodDisruptionBudget " + b.Namespace + "/" + b.Name
	c.add(fault.Finding{Name: "budget-allows-nothing", Subject: where, Field: "disruptionsAllowed",
		Message: fmt.Sprintf("%s allows no disruption now (%d of %d Pods are healthy, %d must be): a drain of their nodes would wait",
			where, b.Status.CurrentHealthy, b.Status.ExpectedPods, b.Status.DesiredHealthy),
		Remedy: "add a replica, or relax the budget during the upgrade; without --drain it does not matter"})
}

// storedVersions finds custom resources that may be stored in a version missing from their definition.
func (c *checker) storedVersions(crd CustomResource) {
	for _, version := range crd.Stored {
		if slices.Contains(crd.Versions, version) {
			continue
		}
		where := "CustomResourceDefinition " + crd.Name
		c.add(fault.Finding{Name: "crd-stored-version", Subject: where, Field: version,
			Message: fmt.Sprintf("%s may have objects stored in %s, which it does not define", where, version),
			Remedy:  "define the version again, migrate the objects, then remove it from status.storedVersions"})
	}
}

// sharedVolumes finds claims shared by Pods with different SELinux labels. From 1.37 on, a volume is mounted with its first Pod's
// label, and the others don't start (#139956).
func (c *checker) sharedVolumes() {
	gate, known := c.release.Gate(releases.Kubelet, "SELinuxMount")
	if known && !gate.On {
		return
	}
	labels := map[string]string{} // by claim
	for _, pod := range c.Cluster.Pods {
		label := selinuxLabel(pod)
		for _, volume := range pod.Spec.Volumes {
			if volume.PersistentVolumeClaim == nil || label == "" {
				continue
			}
			where := "PersistentVolumeClaim " + pod.Namespace + "/" + volume.PersistentVolumeClaim.ClaimName
			if other, seen := labels[where]; !seen || other == label {
				labels[where] = label
				continue
			}
			c.add(fault.Finding{Name: "selinux-mount", Subject: where, Field: "seLinuxChangePolicy",
				Message: fmt.Sprintf("%s is shared by Pods with different SELinux labels; with Kubernetes %s only one of them at a time can use it on a node",
					where, c.release.Minor),
				Remedy: "set securityContext.seLinuxChangePolicy: Recursive in these Pods"})
		}
	}
}

// selinuxLabel returns the label a Pod's volumes are mounted with; empty if the Pod opts out.
func selinuxLabel(pod corev1.Pod) string {
	security := pod.Spec.SecurityContext
	if security != nil && security.SELinuxChangePolicy != nil && *security.SELinuxChangePolicy == corev1.SELinuxChangePolicyRecursive {
		return ""
	}
	for _, container := range containersOf(pod.Spec) {
		if s := container.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged {
			return "privileged"
		}
	}
	if security == nil || security.SELinuxOptions == nil {
		return "of the runtime"
	}
	return security.SELinuxOptions.String()
}

// systemLabels returns kube-system's labels, at least the API server's own.
func (c *checker) systemLabels() map[string]string {
	if len(c.Cluster.SystemLabels) > 0 {
		return c.Cluster.SystemLabels
	}
	return map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}
}
