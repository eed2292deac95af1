// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Finalizer keeps a LabMachine until its machine is gone.
const Finalizer = "labmachine.infrastructure.cluster.x-k8s.io"

// machinesAtATime limits the machines that are booted side by side: on two processors, more of them only wait for each other.
const machinesAtATime = 2

// Machines boots and removes machines. Both may be called again, and then do the rest.
type Machines interface {
	// Boot makes a machine with the image of a Kubernetes version, and boots it with user-data. It returns the machine's address.
	Boot(ctx context.Context, name, version string, userData []byte) (address string, err error)
	// Remove takes a machine away, whatever its state.
	Remove(ctx context.Context, name string) error
}

// MachineReconciler makes a machine of each LabMachine once its bootstrap data is there, and never boots it again: a machine that
// died is Cluster API's to replace.
type MachineReconciler struct {
	client.Client
	Machines Machines
}

// SetupWithManager watches LabMachines and the Machines that own them.
func (r *MachineReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return errors.Wrap(ctrl.NewControllerManagedBy(mgr).For(&LabMachine{}).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(infrastructureOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: machinesAtATime}).Complete(r), "cannot watch LabMachines")
}

// infrastructureOf returns the LabMachine of a Machine.
func infrastructureOf(_ context.Context, object client.Object) []reconcile.Request {
	ref := object.(*clusterv1.Machine).Spec.InfrastructureRef
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: ref.Name}}}
}

// Reconcile implements reconcile.Reconciler.
func (r *MachineReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	machine := &LabMachine{}
	if err := r.Get(ctx, req.NamespacedName, machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !machine.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.remove(ctx, machine)
	}
	if machine.Status.Initialization.done() {
		return ctrl.Result{}, nil
	}
	owner, err := r.owner(ctx, machine)
	if err != nil || owner == nil || owner.Spec.Bootstrap.DataSecretName == nil {
		return ctrl.Result{}, err // the Machine's next change comes here, too
	}
	before := machine.DeepCopyObject().(*LabMachine)
	if controllerutil.AddFinalizer(machine, Finalizer) {
		if err := r.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
			return ctrl.Result{}, errors.Wrap(err, "cannot keep a LabMachine until its machine is gone")
		}
	}
	return ctrl.Result{}, r.boot(ctx, machine, owner)
}

// owner returns the Machine that a LabMachine belongs to, or nil as long as there's none.
func (r *MachineReconciler) owner(ctx context.Context, machine *LabMachine) (*clusterv1.Machine, error) {
	at := slices.IndexFunc(machine.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.Kind == "Machine" })
	if at < 0 {
		return nil, nil
	}
	owner := &clusterv1.Machine{}
	err := r.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.OwnerReferences[at].Name}, owner)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return owner, errors.Wrapf(err, "cannot read the Machine of %s", machine.Name)
}

func (r *MachineReconciler) boot(ctx context.Context, machine *LabMachine, owner *clusterv1.Machine) error {
	userData, err := r.userData(ctx, machine.Namespace, *owner.Spec.Bootstrap.DataSecretName)
	if err != nil {
		return err
	}
	address, err := r.Machines.Boot(ctx, machine.Name, owner.Spec.Version, userData)
	if err != nil {
		return errors.WithMessagef(err, "cannot boot %s", machine.Name)
	}
	before := machine.DeepCopyObject().(*LabMachine)
	machine.Spec.ProviderID = ProviderID(machine.Name)
	if err := r.Patch(ctx, machine, client.MergeFrom(before)); err != nil {
		return errors.Wrap(err, "cannot report a LabMachine's ID")
	}
	before = machine.DeepCopyObject().(*LabMachine)
	machine.Status.Initialization = provisioned()
	machine.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}}
	return errors.Wrap(r.Status().Patch(ctx, machine, client.MergeFrom(before)), "cannot report a LabMachine")
}

// ProviderID is what a machine's kubelet calls itself, by way of the user-data, so that Cluster API finds its Node.
func ProviderID(machine string) string { return "lab://" + machine }

// userData reads the bootstrap data, which must be cloud-init's.
func (r *MachineReconciler) userData(ctx context.Context, namespace, name string) ([]byte, error) {
	secret := &corev1.Secret{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret); err != nil {
		return nil, errors.Wrap(err, "cannot read the bootstrap data")
	}
	if format := string(secret.Data["format"]); format != "" && format != "cloud-config" {
		return nil, errors.Errorf("the bootstrap data in Secret %s has the format %q, and the lab's machines know only cloud-config", name, format)
	}
	return secret.Data["value"], nil
}

func (r *MachineReconciler) remove(ctx context.Context, machine *LabMachine) error {
	if err := r.Machines.Remove(ctx, machine.Name); err != nil {
		return errors.WithMessagef(err, "cannot remove %s", machine.Name)
	}
	before := machine.DeepCopyObject().(*LabMachine)
	if !controllerutil.RemoveFinalizer(machine, Finalizer) {
		return nil
	}
	err := r.Patch(ctx, machine, client.MergeFrom(before))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Wrap(err, "cannot let a LabMachine go")
}
