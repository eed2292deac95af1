// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Balancer spreads the connections to a cluster's endpoint over its control planes.
type Balancer interface {
	// Set replaces the addresses of the control planes.
	Set(addresses ...string)
}

// ClusterReconciler gives a LabCluster its endpoint, and the balancer behind that endpoint the cluster's control planes. There's
// one balancer, so it suits one cluster.
type ClusterReconciler struct {
	client.Client
	Balancer Balancer
	Endpoint clusterv1.APIEndpoint
}

// SetupWithManager watches LabClusters and their machines.
func (r *ClusterReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Wrap(ctrl.NewControllerManagedBy(mgr).For(&LabCluster{}).
		Watches(&LabMachine{}, handler.EnqueueRequestsFromMapFunc(r.clustersOf)).Complete(r), "cannot watch LabClusters")
}

// clustersOf returns the LabCluster of a machine, which has its Cluster's name.
func (r *ClusterReconciler) clustersOf(_ context.Context, machine client.Object) []reconcile.Request {
	name := machine.GetLabels()[clusterv1.ClusterNameLabel]
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: machine.GetNamespace(), Name: name}}}
}

// Reconcile implements reconcile.Reconciler.
func (r *ClusterReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cluster := &LabCluster{}
	if err := r.Get(ctx, req.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	addresses, err := r.controlPlanes(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.Balancer.Set(addresses...)
	if cluster.Spec.ControlPlaneEndpoint != r.Endpoint {
		before := cluster.DeepCopyObject().(*LabCluster)
		cluster.Spec.ControlPlaneEndpoint = r.Endpoint
		if err := r.Patch(ctx, cluster, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, errors.Wrap(err, "cannot give a LabCluster its endpoint")
		}
	}
	if cluster.Status.Initialization.done() {
		return ctrl.Result{}, nil
	}
	before := cluster.DeepCopyObject().(*LabCluster)
	cluster.Status.Initialization = provisioned()
	return ctrl.Result{}, errors.Wrap(r.Status().Patch(ctx, cluster, client.MergeFrom(before)), "cannot report a LabCluster")
}

// controlPlanes returns the sorted addresses of the cluster's control planes that stay.
func (r *ClusterReconciler) controlPlanes(ctx context.Context, cluster *LabCluster) ([]string, error) {
	list := &LabMachineList{}
	err := r.List(ctx, list, client.InNamespace(cluster.Namespace), client.HasLabels{clusterv1.MachineControlPlaneLabel},
		client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name})
	if err != nil {
		return nil, errors.Wrap(err, "cannot list the control planes")
	}
	var addresses []string
	for _, machine := range list.Items {
		if !machine.DeletionTimestamp.IsZero() {
			continue
		}
		for _, address := range machine.Status.Addresses {
			addresses = append(addresses, address.Address)
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}

func provisioned() Initialization {
	yes := true
	return Initialization{Provisioned: &yes}
}
