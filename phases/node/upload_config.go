// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// UploadConfig is the phase upload-config of init: it stores the configuration as it is.
func UploadConfig() step.Phase {
	store := func(ctx context.Context, env *step.Env, name, _ string, objs []manifests.Object) error {
		return env.Keeper().EnsureMissing(ctx, "init phase upload-config "+name, objs...)
	}
	flags := []string{"config", "cri-socket", "dry-run", "kubeconfig", "profile"}
	return UploadConfigWith("Store the configuration in the cluster, for the nodes that join", flags, store)
}

// UploadConfigWith is UploadConfig for another workflow. store writes the objects of the phase name: a ConfigMap, which has the
// configuration under key, and the rights to read it.
func UploadConfigWith(summary string, flags []string,
	store func(ctx context.Context, env *step.Env, name, key string, objs []manifests.Object) error) step.Phase {
	upload := func(name, kind, key string, objects func(*config.Node) ([]manifests.Object, error)) step.Phase {
		return step.Phase{Name: name, Summary: "Upload the " + kind, Flags: flags, Run: func(ctx context.Context, env *step.Env) error {
			objs, err := objects(env.Config)
			if err != nil {
				return err
			}
			env.UI.Printf("Storing the %s in ConfigMap %s/%s", kind, objs[0].GetNamespace(), objs[0].GetName())
			if err := env.Keeper().KeepUnknown(ctx, objs); err != nil {
				return err
			}
			return store(ctx, env, name, key, objs)
		}}
	}
	return step.Phase{Name: "upload-config", Summary: summary, Flags: flags, SideBySide: true, Children: []step.Phase{
		upload("kubeadm", "ClusterConfiguration", manifests.KubeadmConfigKey, manifests.KubeadmConfig),
		upload("kubelet", "KubeletConfiguration", "kubelet", manifests.KubeletConfig),
	}}
}

// ChangedSinceRead is the error of a run that would overwrite a ConfigMap (NAMESPACE/NAME) that somebody has changed since.
func ChangedSinceRead(name string) error {
	return fault.New("ConfigMap "+name+" has been changed since this run read it", "run the same command again")
}

// ConfigMap returns the ConfigMap in kube-system with this name, to be read.
func ConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
	}
}
