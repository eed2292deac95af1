// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package capi

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// TestClusterAPI: the controllers make a cluster of Kubernetes 1.36, add two workers, scale the control plane to three, replace
// a worker and a control plane that died, scale back to one, upgrade everything to 1.37, and take it away.
func TestClusterAPI(t *testing.T) {
	s := newScenario(t)
	version := s.lab.VersionOf(older)
	s.makesCluster(version)
	s.is("one control plane", 1, 0, version)
	s.scalesWorkers(2)
	s.is("two workers", 1, 2, version)
	s.scalesControlPlane(3)
	s.is("three control planes", 3, 2, version)
	s.loses(clusterv1.MachineDeploymentNameLabel)
	s.is("another worker for the dead host", 3, 2, version)
	s.loses(clusterv1.MachineControlPlaneLabel)
	s.is("another control plane for the dead host", 3, 2, version)
	s.scalesControlPlane(1)
	s.is("one control plane again", 1, 2, version)
	version = s.lab.KubernetesVersion()
	s.upgrades(version)
	s.is("all of them upgraded", 1, 2, version)
	s.deletes()
}

const (
	controlPlaneName = "cp"
	workersName      = "worker"
)

// changes an object of Cluster API. On a busy machine, a webhook may take too long to answer once.
func changes[T client.Object](s *scenario, object T, name string, change func(T)) {
	s.Helper()
	s.eventually(name+" is changed", machineLimit, func() error {
		if err := s.get(object, name); err != nil {
			return err
		}
		before := object.DeepCopyObject().(T)
		change(object)
		return s.client.Patch(s.Context(), object, client.MergeFrom(before))
	})
}

func (s *scenario) scalesControlPlane(replicas int32) {
	s.Helper()
	changes(s, &controlplanev1.KubeadmControlPlane{}, controlPlaneName, func(p *controlplanev1.KubeadmControlPlane) { p.Spec.Replicas = &replicas })
}

func (s *scenario) scalesWorkers(replicas int32) {
	s.Helper()
	changes(s, &clusterv1.MachineDeployment{}, workersName, func(d *clusterv1.MachineDeployment) { d.Spec.Replicas = &replicas })
}

// upgrades changes the versions in the order that Cluster API requires: the control plane first.
func (s *scenario) upgrades(version string) {
	s.Helper()
	changes(s, &controlplanev1.KubeadmControlPlane{}, controlPlaneName, func(p *controlplanev1.KubeadmControlPlane) { p.Spec.Version = version })
	s.eventually("the control plane has "+version, 2*machineLimit, func() error { return s.hasControlPlane(1, version) })
	changes(s, &clusterv1.MachineDeployment{}, workersName, func(d *clusterv1.MachineDeployment) {
		d.Spec.Template.Spec.Version = version
	})
}

// loses cuts the power of a machine with a label. Cluster API replaces this Machine, and no other.
func (s *scenario) loses(label string) {
	s.Helper()
	all, err := s.machines()
	s.try(err)
	machines, err := s.machines(client.HasLabels{label})
	s.try(err)
	lost := machines[len(machines)-1]
	s.Logf("%s dies", lost.Name)
	node := s.nodeOf(lost)
	s.eventually(node.Name()+" is off", machineLimit, func() error { return node.Kill(s.Context()) })
	s.eventually(lost.Name+" is gone", 2*machineLimit, func() error { return s.losesOnly(lost.Name, all) })
}

// losesOnly reports an error until a Machine is gone. It ends the test if another one goes.
func (s *scenario) losesOnly(lost string, before []clusterv1.Machine) error {
	s.Helper()
	now, err := s.machines()
	if err != nil {
		return err
	}
	stays := map[string]bool{} // false for a Machine that's about to go
	for _, m := range now {
		stays[m.Name] = m.DeletionTimestamp.IsZero()
	}
	for _, m := range before {
		if m.Name != lost && !stays[m.Name] {
			s.Fatalf("%s goes, too", m.Name)
		}
	}
	if _, isThere := stays[lost]; isThere {
		return errors.New("it's still there")
	}
	return nil
}

func (s *scenario) machines(options ...client.ListOption) ([]clusterv1.Machine, error) {
	list := &clusterv1.MachineList{}
	err := s.client.List(s.Context(), list, append(options, client.InNamespace(namespace))...)
	return list.Items, err
}

// nodeOf returns a Machine's machine.
func (s *scenario) nodeOf(machine clusterv1.Machine) *nodes.Node {
	s.Helper()
	node, err := s.lab.Node(machine.Spec.InfrastructureRef.Name)
	s.try(err)
	return node
}

// is waits until the cluster has its control planes and workers, and nothing else, all with a version, and checks it.
func (s *scenario) is(what string, planes, workers int, version string) {
	s.Helper()
	limit := machineLimit * 3 // up to three machines follow each other
	s.eventually(what+": the control plane", limit, func() error { return s.hasControlPlane(planes, version) })
	s.eventually(what+": the workers", limit, func() error { return s.hasWorkers(workers, version) })
	s.eventually(what+": the nodes", limit, func() error { return s.hasNodes(planes, workers, version) })
	machines, err := s.machines()
	s.try(err)
	for _, machine := range machines {
		s.bootstrapped(s.nodeOf(machine))
	}
}

// hasControlPlane asks Cluster API, which looks at the components and at etcd's members.
func (s *scenario) hasControlPlane(replicas int, version string) error {
	s.Helper()
	s.nothingFailed()
	p := &controlplanev1.KubeadmControlPlane{}
	if err := s.get(p, controlPlaneName); err != nil {
		return err
	}
	conditions := []string{
		controlplanev1.KubeadmControlPlaneAvailableCondition, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition,
		controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition, controlplanev1.KubeadmControlPlaneMachinesReadyCondition,
		controlplanev1.KubeadmControlPlaneMachinesUpToDateCondition,
	}
	for _, kind := range conditions {
		if !meta.IsStatusConditionTrue(p.Status.Conditions, kind) {
			return fmt.Errorf("%s: %+v", kind, meta.FindStatusCondition(p.Status.Conditions, kind))
		}
	}
	have := []*int32{p.Status.Replicas, p.Status.ReadyReplicas, p.Status.UpToDateReplicas}
	if err := counts(replicas, have, p.Generation, p.Status.ObservedGeneration); err != nil {
		return err
	}
	if v := p.Status.Versions; len(v) != 1 || v[0].Version != version {
		return fmt.Errorf("it has %v", v)
	}
	return nil
}

func (s *scenario) hasWorkers(replicas int, version string) error {
	s.Helper()
	s.nothingFailed()
	d := &clusterv1.MachineDeployment{}
	if err := s.get(d, workersName); err != nil {
		return err
	}
	if d.Spec.Template.Spec.Version != version {
		return fmt.Errorf("they're to have %s", d.Spec.Template.Spec.Version)
	}
	have := []*int32{d.Status.Replicas, d.Status.ReadyReplicas, d.Status.UpToDateReplicas}
	return counts(replicas, have, d.Generation, d.Status.ObservedGeneration)
}

// counts compares a status's replicas, all, the ready and the up to date, with the wanted number.
func counts(want int, have []*int32, generation, observed int64) error {
	all, ready, upToDate := ptr.Deref(have[0], -1), ptr.Deref(have[1], -1), ptr.Deref(have[2], -1)
	if w := int32(want); generation == observed && all == w && ready == w && upToDate == w {
		return nil
	}
	return fmt.Errorf("%d replicas, %d ready, %d up to date, want %d; generation %d of %d", all, ready, upToDate, want, observed, generation)
}

// deletes takes the cluster away, and all its machines with it.
func (s *scenario) deletes() {
	s.Helper()
	cluster := &clusterv1.Cluster{}
	s.try(s.get(cluster, clusterName))
	s.eventually("the cluster is to go", machineLimit, func() error { return client.IgnoreNotFound(s.client.Delete(s.Context(), cluster)) })
	s.goes(cluster, 2*machineLimit)
	all, err := s.lab.Nodes()
	s.try(err)
	if left := slices.DeleteFunc(all, func(n *nodes.Node) bool { return n.Name() == managementName }); len(left) > 0 {
		s.Errorf("%d machines are left, %s among them", len(left), left[0].Name())
	}
}
