// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Groups and users that get permissions from init.
const (
	// nodeTokenGroup is the group of clients that authenticate with a bootstrap token.
	nodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

	nodesGroup        = "system:nodes"
	anonymousUser     = "system:anonymous"
	kubeletClientUser = "kube-apiserver-kubelet-client"
)

// KubeletAPIAdmin lets the API servers' client certificates use the kubelets' API.
func KubeletAPIAdmin() Object {
	return clusterBinding("kubeadm:apiserver-kubelet-client", "system:kubelet-api-admin", user(kubeletClientUser))
}

// readable returns a Role and RoleBinding that let subjects read one object of a namespace.
func readable(namespace, role, resource, name string, subjects ...rbacv1.Subject) []Object {
	meta := metav1.ObjectMeta{Name: role, Namespace: namespace}
	return []Object{
		&rbacv1.Role{
			TypeMeta:   rbacType("Role"),
			ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: []string{"get"},
			}},
		},
		&rbacv1.RoleBinding{
			TypeMeta:   rbacType("RoleBinding"),
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
			Subjects:   subjects,
		},
	}
}

func clusterRole(name string, rules ...rbacv1.PolicyRule) Object {
	return &rbacv1.ClusterRole{TypeMeta: rbacType("ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
}

func clusterBinding(name, role string, subject rbacv1.Subject) Object {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   rbacType("ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{subject},
	}
}

func serviceAccount(name string) Object {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
	}
}

func rbacType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
}

// group and user leave out their API group: the server sets the only possible group.
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }

func user(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name} }

func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}
}

// controllerAccounts lists the service accounts that the controller manager makes for its default controllers, in every supported
// version: https://kubernetes.io/docs/reference/access-authn-authz/rbac/#controller-roles
var controllerAccounts = []string{
	"attachdetach-controller", "bootstrap-signer", "certificate-controller", "clusterrole-aggregation-controller",
	"cronjob-controller", "daemon-set-controller", "deployment-controller", "disruption-controller", "endpoint-controller",
	"endpointslice-controller", "endpointslicemirroring-controller", "ephemeral-volume-controller", "expand-controller",
	"generic-garbage-collector", "horizontal-pod-autoscaler", "job-controller", "legacy-service-account-token-cleaner",
	"namespace-controller", "node-controller", "persistent-volume-binder", "pod-garbage-collector",
	"pv-protection-controller", "pvc-protection-controller", "replicaset-controller", "replication-controller",
	"resource-claim-controller", "resourcequota-controller", "root-ca-cert-publisher", "service-account-controller",
	"service-cidrs-controller", "statefulset-controller", "token-cleaner", "ttl-after-finished-controller",
	"ttl-controller", "validatingadmissionpolicy-status-controller", "volumeattributesclass-protection-controller",
}

// FirstStart returns objects that a new cluster's controller manager and scheduler need before the cluster makes them:
//   - the right to their leases, which the API server grants with its default roles, a second or more after it begins to serve. A
//     component that asks too early tries again two to four seconds later.
//   - the controllers' service accounts. The controller manager creates them one after another, with three requests each, and
//     allows itself 20 requests a second.
//
// It returns nothing for a controller manager with other controllers or credentials: it might make no such accounts, or have no
// garbage collector for the Role.
func FirstStart(n *config.Node) []Object {
	custom := func(a config.Arg) bool { return a.Is("controllers") || a.Is("use-service-account-credentials") }
	if slices.ContainsFunc(n.Cluster.ControllerManager.ExtraArgs, custom) {
		return nil
	}
	objs := firstLeases()
	for _, name := range controllerAccounts {
		objs = append(objs, serviceAccount(name))
	}
	return objs
}

// firstLeases returns a Role and RoleBinding that last until the default roles exist: their owner doesn't exist, so the garbage
// collector deletes them at its start.
func firstLeases() []Object {
	components := []string{ControllerManagerName, SchedulerName}
	meta := metav1.ObjectMeta{
		Name: "slipway:first-leases", Namespace: metav1.NamespaceSystem,
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "none", UID: "00000000-0000-0000-0000-000000000000"}},
	}
	leases := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, Verbs: verbs}
	}
	own := leases("get", "update")
	own.ResourceNames = components
	binding := &rbacv1.RoleBinding{
		TypeMeta: rbacType("RoleBinding"), ObjectMeta: meta,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
	}
	for _, name := range components {
		binding.Subjects = append(binding.Subjects, user("system:"+name))
	}
	return []Object{
		&rbacv1.Role{TypeMeta: rbacType("Role"), ObjectMeta: meta, Rules: []rbacv1.PolicyRule{leases("create"), own}},
		binding,
	}
}
