// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// UploadConfig is the phase upload-config of init: it stores the configuration as it is.
func UploadConfig() step.Phase {
	asIs := func(context.Context, *step.Env, *corev1.ConfigMap, string) error { return nil }
	flags := []string{"config", "cri-socket", "dry-run", "kubeconfig", "profile"}
	return UploadConfigWith("Store the configuration in the cluster, for the nodes that join", flags, asIs)
}

// UploadConfigWith is UploadConfig for another workflow. complete may add to each ConfigMap, which has the configuration under key.
func UploadConfigWith(summary string, flags []string,
	complete func(ctx context.Context, env *step.Env, cm *corev1.ConfigMap, key string) error) step.Phase {
	upload := func(name, kind, key string, objects func(*config.Node) ([]manifests.Object, error)) step.Phase {
		return step.Phase{Name: name, Summary: "Upload the " + kind, Flags: flags, Run: func(ctx context.Context, env *step.Env) error {
			objs, err := objects(env.Config)
			if err != nil {
				return err
			}
			cm := objs[0].(*corev1.ConfigMap)
			if err := complete(ctx, env, cm, key); err != nil {
				return err
			}
			env.UI.Printf("Storing the %s in ConfigMap %s/%s", kind, cm.Namespace, cm.Name)
			if err := env.Keeper().KeepUnknown(ctx, objs); err != nil {
				return err
			}
			return env.Keeper().EnsureMissing(ctx, "init phase upload-config "+name, objs...)
		}}
	}
	return step.Phase{Name: "upload-config", Summary: summary, Flags: flags, SideBySide: true, Children: []step.Phase{
		upload("kubeadm", "ClusterConfiguration", manifests.KubeadmConfigKey, manifests.KubeadmConfig),
		upload("kubelet", "KubeletConfiguration", "kubelet", manifests.KubeletConfig),
	}}
}

// ConfigMap returns the ConfigMap in kube-system with this name, to be read.
func ConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceSystem},
	}
}
