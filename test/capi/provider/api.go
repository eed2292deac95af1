// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package provider is a small infrastructure provider for Cluster API: its machines are those of the lab, which boot with
// cloud-init and have Slipway where other images have kubeadm.
package provider

import (
	_ "embed"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// GroupVersion is the API of the provider's objects.
var GroupVersion = schema.GroupVersion{Group: "infrastructure.cluster.x-k8s.io", Version: "v1alpha1"}

// CRDs defines the provider's objects in a management cluster, by Cluster API's contract v1beta2.
//
//go:embed crds.yaml
var CRDs []byte

// AddToScheme makes the kinds that the provider reconciles known. A LabMachineTemplate isn't among them: only Cluster API reads
// it.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &LabCluster{}, &LabClusterList{}, &LabMachine{}, &LabMachineList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// LabCluster is the infrastructure all machines of a cluster share: the balancer in front of its control plane.
type LabCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LabClusterSpec   `json:"spec,omitzero"`
	Status LabClusterStatus `json:"status,omitzero"`
}

// LabClusterSpec is what the provider decides about a cluster.
type LabClusterSpec struct {
	ControlPlaneEndpoint clusterv1.APIEndpoint `json:"controlPlaneEndpoint,omitzero"`
}

// LabClusterStatus tells Cluster API that machines may follow.
type LabClusterStatus struct {
	Initialization Initialization `json:"initialization,omitzero"`
}

// Initialization is complete once an object's infrastructure exists, and stays so.
type Initialization struct {
	Provisioned *bool `json:"provisioned,omitempty"`
}

func (i Initialization) done() bool { return i.Provisioned != nil && *i.Provisioned }

// LabClusterList is a list of them.
type LabClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LabCluster `json:"items"`
}

// LabMachine is one machine of the lab.
type LabMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   LabMachineSpec   `json:"spec,omitzero"`
	Status LabMachineStatus `json:"status,omitzero"`
}

// LabMachineSpec has the name by which Cluster API finds the machine's Node.
type LabMachineSpec struct {
	ProviderID string `json:"providerID,omitempty"`
}

// LabMachineStatus says where the machine is.
type LabMachineStatus struct {
	Initialization Initialization             `json:"initialization,omitzero"`
	Addresses      []clusterv1.MachineAddress `json:"addresses,omitempty"`
}

// LabMachineList is a list of them.
type LabMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []LabMachine `json:"items"`
}

func (i Initialization) clone() Initialization {
	if i.Provisioned != nil {
		provisioned := *i.Provisioned
		i.Provisioned = &provisioned
	}
	return i
}

func (c *LabCluster) clone() LabCluster {
	out := *c
	c.DeepCopyInto(&out.ObjectMeta)
	out.Status.Initialization = c.Status.Initialization.clone()
	return out
}

func (m *LabMachine) clone() LabMachine {
	out := *m
	m.DeepCopyInto(&out.ObjectMeta)
	out.Status.Initialization = m.Status.Initialization.clone()
	out.Status.Addresses = slices.Clone(m.Status.Addresses)
	return out
}

// DeepCopyObject implements runtime.Object.
func (c *LabCluster) DeepCopyObject() runtime.Object {
	out := c.clone()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (m *LabMachine) DeepCopyObject() runtime.Object {
	out := m.clone()
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *LabClusterList) DeepCopyObject() runtime.Object {
	out := &LabClusterList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, l.Items[i].clone())
	}
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *LabMachineList) DeepCopyObject() runtime.Object {
	out := &LabMachineList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, l.Items[i].clone())
	}
	return out
}
