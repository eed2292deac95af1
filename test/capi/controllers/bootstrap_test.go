// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package controllers pins Cluster API's controllers, and keeps the bootstrap data they make of testdata/cluster.yaml, for tests
// that read it as Slipway does.
package controllers

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/bootstrap/kubeadm/reconcilers/kubeadmconfig"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/controlplane/kubeadm/pkg/desiredstate"
	"sigs.k8s.io/cluster-api/util/secret"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var update = flag.Bool("update", false, "write the golden files")

// TestBootstrapGolden: the unmodified controller makes this bootstrap data of TestClusterAPI's cluster.
func TestBootstrapGolden(t *testing.T) {
	for _, row := range []struct {
		name, version          string
		initialized, isControl bool
	}{
		{"first-control-plane", "v1.37.2", false, true},
		{"first-control-plane-1.35", "v1.35.1", false, true}, // with a feature gate of its time
		{"control-plane", "v1.37.2", true, true},
		{"worker", "v1.37.2", true, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			got := withoutSecrets(bootstrapData(t, row.version, row.initialized, row.isControl))
			path := filepath.Join("..", "testdata", "bootstrap", row.name+".yaml")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s differs; compare after go test -update:\n%s", path, got)
			}
		})
	}
}

// objects of testdata/cluster.yaml that the bootstrap data depends on.
type objects struct {
	cluster      *clusterv1.Cluster
	controlPlane *controlplanev1.KubeadmControlPlane
	worker       *bootstrapv1.KubeadmConfigTemplate
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clusterv1.AddToScheme, controlplanev1.AddToScheme, bootstrapv1.AddToScheme, corev1.AddToScheme, apiextensionsv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// read decodes the manifest strictly.
func read(t *testing.T, scheme *runtime.Scheme, version string) objects {
	t.Helper()
	data, err := os.ReadFile("../testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var all objects
	for document := range strings.SplitSeq(strings.ReplaceAll(string(data), "${VERSION}", version), "\n---\n") {
		if strings.Contains(document, "kind: LabCluster\n") || strings.Contains(document, "kind: LabMachineTemplate\n") {
			continue
		}
		object, _, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, document)
		}
		switch object := object.(type) {
		case *clusterv1.Cluster:
			all.cluster = object
		case *controlplanev1.KubeadmControlPlane:
			all.controlPlane = object
		case *bootstrapv1.KubeadmConfigTemplate:
			all.worker = object
		}
	}
	return all
}

// bootstrapData runs the controller for a machine of the cluster.
func bootstrapData(t *testing.T, version string, initialized, isControl bool) []byte {
	t.Helper()
	ctx, scheme := t.Context(), newScheme(t)
	all := read(t, scheme, version)
	stage(all.cluster, initialized)
	machine, config := machineOf(t, all, initialized, isControl)
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(all.cluster, all.controlPlane, definition(), machine, config).
		WithStatusSubresource(&bootstrapv1.KubeadmConfig{}).Build()
	key := client.ObjectKeyFromObject(all.cluster)
	owner := *metav1.NewControllerRef(all.controlPlane, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
	certificates := secret.NewCertificatesForInitialControlPlane(&all.controlPlane.Spec.KubeadmConfigSpec.ClusterConfiguration)
	if err := certificates.LookupOrGenerate(ctx, c, key, owner); err != nil {
		t.Fatal(err)
	}
	r := &kubeadmconfig.Reconciler{
		Client: c, SecretCachingClient: c, APIReader: c, TokenTTL: time.Hour, KubeadmInitLock: free{},
		ClusterCache: clustercache.NewFakeClusterCache(fake.NewClientBuilder().WithScheme(scheme).Build(), key),
	}
	for range 2 { // the first only sets a condition
		if _, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)}); err != nil {
			t.Fatal(err)
		}
	}
	made := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(config), made); err != nil {
		t.Fatal(err)
	}
	return made.Data["value"]
}

// definition is as much of the control plane's CRD as the controller looks for.
func definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name: "kubeadmcontrolplanes." + controlplanev1.GroupVersion.Group, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
	}}
}

// free is the lock that the first control plane takes.
type free struct{}

func (free) Lock(context.Context, *clusterv1.Cluster, *clusterv1.Machine) bool { return true }
func (free) Unlock(context.Context, *clusterv1.Cluster) bool                   { return true }

// stage brings a cluster to where machines get their data.
func stage(cluster *clusterv1.Cluster, initialized bool) {
	yes := true
	cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.168.99.1", Port: 6443}
	cluster.Status.Initialization.InfrastructureProvisioned = &yes
	if initialized {
		cluster.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue}}
	}
}

// machineOf makes a Machine with its KubeadmConfig as Cluster API does.
func machineOf(t *testing.T, all objects, initialized, isControl bool) (*clusterv1.Machine, *bootstrapv1.KubeadmConfig) {
	t.Helper()
	const name = "machine-1"
	machine := &clusterv1.Machine{
		TypeMeta:   metav1.TypeMeta{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: all.cluster.Namespace, UID: name, Labels: map[string]string{}},
		Spec: clusterv1.MachineSpec{
			ClusterName: all.cluster.Name, Version: all.controlPlane.Spec.Version,
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "KubeadmConfig", Name: name,
			}},
		},
	}
	config := &bootstrapv1.KubeadmConfig{Spec: *all.worker.Spec.Template.Spec.DeepCopy()}
	if isControl {
		machine.Labels[clusterv1.MachineControlPlaneLabel] = ""
		var err error
		if config, err = desiredstate.ComputeDesiredKubeadmConfig(all.controlPlane, all.cluster, initialized, name, nil); err != nil {
			t.Fatal(err)
		}
	}
	config.ObjectMeta = metav1.ObjectMeta{
		Name: name, Namespace: machine.Namespace, Labels: map[string]string{clusterv1.ClusterNameLabel: all.cluster.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(machine, clusterv1.GroupVersion.WithKind("Machine"))},
	}
	return machine, config
}

// withoutSecrets replaces all that differs between runs.
func withoutSecrets(data []byte) []byte {
	for pattern, value := range map[string]string{
		`(?s)-----BEGIN ([A-Z ]+)-----.*?-----END [A-Z ]+-----`: "PEM of a $1",
		`\b[a-z0-9]{6}\.[a-z0-9]{16}\b`:                         "abcdef.0123456789abcdef",
		`sha256:[0-9a-f]{64}`:                                   "sha256:" + strings.Repeat("0", 64),
	} {
		data = regexp.MustCompile(pattern).ReplaceAll(data, []byte(value))
	}
	return data
}
