// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

func UploadConfig() step.Phase {
	flags := []string{"config", "cri-socket", "dry-run", "kubeconfig"}
	return step.Phase{
		Name:       "upload-config",
		Summary:    "Store the configuration in the cluster, for the nodes that join",
		Flags:      flags,
		SideBySide: true,
		Children: []step.Phase{
			{Name: "kubeadm", Summary: "Upload the ClusterConfiguration", Flags: flags, Run: runUploadKubeadmConfig},
			{Name: "kubelet", Summary: "Upload the KubeletConfiguration", Flags: flags, Run: runUploadKubeletConfig},
		},
	}
}

func runUploadKubeadmConfig(ctx context.Context, env *step.Env) error {
	return UploadKubeadmConfig(ctx, env, nil)
}

// UploadKubeadmConfig stores the ClusterConfiguration in a ConfigMap with these annotations.
func UploadKubeadmConfig(ctx context.Context, env *step.Env, annotations map[string]string) error {
	objs, err := manifests.KubeadmConfig(env.Config)
	if err != nil {
		return err
	}
	annotate(objs[0], annotations)
	env.UI.Printf("Storing the ClusterConfiguration in ConfigMap kube-system/kubeadm-config")
	if err := env.Keeper().KeepUnknown(ctx, objs); err != nil {
		return err
	}
	return env.Keeper().EnsureMissing(ctx, "init phase upload-config kubeadm", objs...)
}

func runUploadKubeletConfig(ctx context.Context, env *step.Env) error {
	return UploadKubeletConfig(ctx, env, nil)
}

// UploadKubeletConfig stores the KubeletConfiguration in a ConfigMap with these annotations besides its own.
func UploadKubeletConfig(ctx context.Context, env *step.Env, annotations map[string]string) error {
	objs, err := manifests.KubeletConfig(env.Config)
	if err != nil {
		return err
	}
	annotate(objs[0], annotations)
	env.UI.Printf("Storing the KubeletConfiguration in ConfigMap kube-system/kubelet-config")
	if err := env.Keeper().KeepUnknown(ctx, objs); err != nil {
		return err
	}
	return env.Keeper().EnsureMissing(ctx, "init phase upload-config kubelet", objs...)
}

func annotate(obj manifests.Object, annotations map[string]string) {
	all := obj.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, annotations)
	obj.SetAnnotations(all)
}
