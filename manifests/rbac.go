// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Groups and users that get permissions from init.
const (
	// NodeTokenGroup is the group of clients that authenticate with a bootstrap token.
	NodeTokenGroup = "system:bootstrappers:kubeadm:default-node-token"

	nodesGroup        = "system:nodes"
	anonymousUser     = "system:anonymous"
	kubeletClientUser = "kube-apiserver-kubelet-client"
)

// KubeletAPIAdmin lets the API server's client certificate use the kubelets' API.
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

// group and user leave out their API group: the server sets the only possible one.
func group(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.GroupKind, Name: name} }

func user(name string) rbacv1.Subject { return rbacv1.Subject{Kind: rbacv1.UserKind, Name: name} }

func account(name string) rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: metav1.NamespaceSystem}
}
