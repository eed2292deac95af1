// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"maps"

	"github.com/slipway-k8s/slipway/manifests"
)

func uploadConfig() Phase {
	flags := []string{"config", "cri-socket", "dry-run", "kubeconfig"}
	return Phase{
		Name:       "upload-config",
		Summary:    "Store the configuration in the cluster, for the nodes that join",
		Flags:      flags,
		SideBySide: true,
		Children: []Phase{
			{Name: "kubeadm", Summary: "Upload the ClusterConfiguration", Flags: flags, Run: runUploadKubeadmConfig},
			{Name: "kubelet", Summary: "Upload the KubeletConfiguration", Flags: flags, Run: runUploadKubeletConfig},
		},
	}
}

func runUploadKubeadmConfig(ctx context.Context, env *Env) error {
	return uploadKubeadmConfig(ctx, env, nil)
}

// uploadKubeadmConfig stores the ClusterConfiguration in a ConfigMap with the given annotations.
func uploadKubeadmConfig(ctx context.Context, env *Env, annotations map[string]string) error {
	objs, err := manifests.KubeadmConfig(env.Config)
	if err != nil {
		return err
	}
	annotate(objs[0], annotations)
	env.UI.Printf("Storing the ClusterConfiguration in ConfigMap kube-system/kubeadm-config")
	if err := env.keeper().KeepUnknown(ctx, objs); err != nil {
		return err
	}
	return env.keeper().EnsureMissing(ctx, "init phase upload-config kubeadm", objs...)
}

func runUploadKubeletConfig(ctx context.Context, env *Env) error {
	return uploadKubeletConfig(ctx, env, nil)
}

// uploadKubeletConfig stores the KubeletConfiguration in a ConfigMap with these annotations beside its own.
func uploadKubeletConfig(ctx context.Context, env *Env, annotations map[string]string) error {
	objs, err := manifests.KubeletConfig(env.Config)
	if err != nil {
		return err
	}
	annotate(objs[0], annotations)
	env.UI.Printf("Storing the KubeletConfiguration in ConfigMap kube-system/kubelet-config")
	if err := env.keeper().KeepUnknown(ctx, objs); err != nil {
		return err
	}
	return env.keeper().EnsureMissing(ctx, "init phase upload-config kubelet", objs...)
}

func annotate(obj manifests.Object, annotations map[string]string) {
	all := obj.GetAnnotations()
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, annotations)
	obj.SetAnnotations(all)
}
