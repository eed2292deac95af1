// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// fakeMachines records what the provider does with machines.
type fakeMachines struct {
	done  []string
	fails error
}

func (f *fakeMachines) Boot(_ context.Context, name, version string, userData []byte) (string, error) {
	f.done = append(f.done, fmt.Sprintf("boot %s %s %s", name, version, userData))
	return "192.168.99.50", f.fails
}

func (f *fakeMachines) Remove(_ context.Context, name string) error {
	f.done = append(f.done, "remove "+name)
	return f.fails
}

type fakeBalancer []string

func (f *fakeBalancer) Set(addresses ...string) { *f = addresses }

// api returns a management cluster with these objects.
func api(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{AddToScheme, clusterv1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&LabCluster{}, &LabMachine{}).Build()
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name, Namespace: "default"} }

func request(name string) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "default", Name: name}}
}

// scene is a LabMachine with everything it waits for.
func scene() (machine *LabMachine, owner *clusterv1.Machine, secret *corev1.Secret) {
	machine = &LabMachine{ObjectMeta: meta("lab-1")}
	machine.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: "owner"}}
	owner = &clusterv1.Machine{ObjectMeta: meta("owner")}
	name := "data"
	owner.Spec.Version, owner.Spec.Bootstrap.DataSecretName = "v1.37.2", &name
	secret = &corev1.Secret{ObjectMeta: meta(name), Data: map[string][]byte{"value": []byte("#cloud-config"), "format": []byte("cloud-config")}}
	return machine, owner, secret
}

func TestMachineBoots(t *testing.T) {
	machine, owner, secret := scene()
	c, machines := api(t, machine, owner, secret), &fakeMachines{fails: errors.New("no room")}
	r := &MachineReconciler{c, machines}
	if _, err := r.Reconcile(t.Context(), request("lab-1")); !errors.Is(err, machines.fails) {
		t.Fatalf("a machine that didn't boot gives %v", err)
	}
	if got := read(t, c, &LabMachine{}); got.Status.Initialization.done() || !slices.Contains(got.Finalizers, Finalizer) {
		t.Errorf("a machine that didn't boot is %+v", got)
	}
	machines.fails = nil
	for range 2 { // once it's provisioned, it's never booted again
		if _, err := r.Reconcile(t.Context(), request("lab-1")); err != nil {
			t.Fatal(err)
		}
	}
	boot := "boot lab-1 v1.37.2 #cloud-config"
	if !slices.Equal(machines.done, []string{boot, boot}) {
		t.Errorf("the provider did %q", machines.done)
	}
	got := read(t, c, &LabMachine{})
	address := clusterv1.MachineAddress{Type: clusterv1.MachineInternalIP, Address: "192.168.99.50"}
	if !got.Status.Initialization.done() || got.Spec.ProviderID != ProviderID("lab-1") || !slices.Equal(got.Status.Addresses, []clusterv1.MachineAddress{address}) {
		t.Errorf("the machine is %+v", got)
	}
}

func read(t *testing.T, c client.Client, machine *LabMachine) *LabMachine {
	t.Helper()
	if err := c.Get(t.Context(), request("lab-1").NamespacedName, machine); err != nil {
		t.Fatal(err)
	}
	return machine
}

// TestMachineWaits: nothing boots without a Machine, its bootstrap data, or data for cloud-init.
func TestMachineWaits(t *testing.T) {
	for name, change := range map[string]func(machine *LabMachine, owner *clusterv1.Machine, secret *corev1.Secret){
		"no Machine yet": func(machine *LabMachine, _ *clusterv1.Machine, _ *corev1.Secret) { machine.OwnerReferences = nil },
		"its Machine gone": func(machine *LabMachine, _ *clusterv1.Machine, _ *corev1.Secret) {
			machine.OwnerReferences[0].Name = "gone"
		},
		"no data yet": func(_ *LabMachine, owner *clusterv1.Machine, _ *corev1.Secret) {
			owner.Spec.Bootstrap.DataSecretName = nil
		},
		"data for Ignition": func(_ *LabMachine, _ *clusterv1.Machine, secret *corev1.Secret) {
			secret.Data["format"] = []byte("ignition")
		},
	} {
		t.Run(name, func(t *testing.T) {
			machine, owner, secret := scene()
			change(machine, owner, secret)
			machines := &fakeMachines{}
			c := api(t, machine, owner, secret)
			_, err := (&MachineReconciler{c, machines}).Reconcile(t.Context(), request("lab-1"))
			if wrong := name == "data for Ignition"; (err != nil) != wrong {
				t.Errorf("it gives %v", err)
			}
			if len(machines.done) > 0 || read(t, c, &LabMachine{}).Status.Initialization.done() {
				t.Errorf("the provider did %q", machines.done)
			}
		})
	}
}

func TestMachineGoes(t *testing.T) {
	machine, owner, secret := scene()
	machine.Finalizers = []string{Finalizer}
	c, machines := api(t, machine, owner, secret), &fakeMachines{fails: errors.New("busy")}
	if err := c.Delete(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	r := &MachineReconciler{c, machines}
	if _, err := r.Reconcile(t.Context(), request("lab-1")); !errors.Is(err, machines.fails) {
		t.Fatalf("a machine that stays gives %v", err)
	}
	read(t, c, &LabMachine{}) // it's still there
	machines.fails = nil
	if _, err := r.Reconcile(t.Context(), request("lab-1")); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), request("lab-1").NamespacedName, &LabMachine{}); !apierrors.IsNotFound(err) {
		t.Errorf("the object is still there: %v", err)
	}
	if !slices.Equal(machines.done, []string{"remove lab-1", "remove lab-1"}) {
		t.Errorf("the provider did %q", machines.done)
	}
}

// at is a cluster's machine with an address.
func at(name, address, cluster string, controlPlane bool) *LabMachine {
	m := &LabMachine{ObjectMeta: meta(name)}
	m.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	if controlPlane {
		m.Labels[clusterv1.MachineControlPlaneLabel] = ""
	}
	m.Status.Addresses = []clusterv1.MachineAddress{{Type: clusterv1.MachineInternalIP, Address: address}}
	return m
}

// TestClusterBalances: the balancer gets the cluster's control planes that stay, and the LabCluster its endpoint.
func TestClusterBalances(t *testing.T) {
	going := at("cp-3", "192.168.99.53", "lab", true)
	going.Finalizers = []string{Finalizer}
	c := api(t, &LabCluster{ObjectMeta: meta("lab")}, at("cp-2", "192.168.99.52", "lab", true), at("cp-1", "192.168.99.51", "lab", true), going,
		at("other", "192.168.99.54", "another", true), at("worker", "192.168.99.55", "lab", false), &LabMachine{ObjectMeta: meta("new")})
	if err := c.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	balancer := &fakeBalancer{}
	r := &ClusterReconciler{Client: c, Balancer: balancer, Endpoint: clusterv1.APIEndpoint{Host: "192.168.99.1", Port: 6443}}
	if _, err := r.Reconcile(t.Context(), request("lab")); err != nil {
		t.Fatal(err)
	}
	if want := []string{"192.168.99.51", "192.168.99.52"}; !slices.Equal(*balancer, want) {
		t.Errorf("the balancer has %q, want %q", *balancer, want)
	}
	got := &LabCluster{}
	if err := c.Get(t.Context(), request("lab").NamespacedName, got); err != nil {
		t.Fatal(err)
	}
	if got.Spec.ControlPlaneEndpoint != r.Endpoint || !got.Status.Initialization.done() {
		t.Errorf("the cluster is %+v", got)
	}
}

// TestEvents: a change of a machine comes to its cluster, and one of a Machine to its LabMachine.
func TestEvents(t *testing.T) {
	got := (&ClusterReconciler{}).clustersOf(t.Context(), at("cp-1", "192.168.99.51", "lab", true))
	if !slices.Equal(got, []ctrl.Request{request("lab")}) {
		t.Errorf("the machine's change comes to %v", got)
	}
	machine := &clusterv1.Machine{ObjectMeta: meta("owner")}
	machine.Spec.InfrastructureRef.Name = "lab-1"
	if got := infrastructureOf(t.Context(), machine); !slices.Equal(got, []ctrl.Request{request("lab-1")}) {
		t.Errorf("the Machine's change comes to %v", got)
	}
}
