// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/manifests"
)

func uploadConfig() Phase {
	flags := []string{"config", "cri-socket", "dry-run", "kubeconfig"}
	return Phase{
		Name:       "upload-config",
		Summary:    "Keep the configuration in the cluster, for the nodes that join",
		Flags:      flags,
		SideBySide: true,
		Children: []Phase{
			{Name: "kubeadm", Summary: "Upload the ClusterConfiguration", Flags: flags, Run: runUploadKubeadmConfig},
			{Name: "kubelet", Summary: "Upload the KubeletConfiguration", Flags: flags, Run: runUploadKubeletConfig},
		},
	}
}

func runUploadKubeadmConfig(ctx context.Context, env *Env) error {
	objs, err := manifests.KubeadmConfig(env.Config)
	if err != nil {
		return err
	}
	env.UI.Printf("Keeping the ClusterConfiguration in ConfigMap kube-system/kubeadm-config")
	if err := keepUnknown(ctx, env, objs); err != nil {
		return err
	}
	return ensureMissing(ctx, env, "init phase upload-config kubeadm", objs...)
}

func runUploadKubeletConfig(ctx context.Context, env *Env) error {
	objs, err := manifests.KubeletConfig(env.Config)
	if err != nil {
		return err
	}
	env.UI.Printf("Keeping the KubeletConfiguration in ConfigMap kube-system/kubelet-config")
	if err := keepUnknown(ctx, env, objs); err != nil {
		return err
	}
	if err := ensureMissing(ctx, env, "init phase upload-config kubelet", objs...); err != nil {
		return err
	}
	if env.Config.NodeLocalCRISocket() {
		return nil
	}
	return env.Cluster.MarkNode(ctx, env.Config.Name, cluster.Mark{
		Annotations: map[string]string{annotationCRISocket: env.Config.CRISocket},
	})
}

// ensure makes the API hold objs. The administrators' group is given its role
// first, once in a run: any phase may be the first to need it.
func ensure(ctx context.Context, env *Env, objs ...manifests.Object) error {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	list := make([]cluster.Object, len(objs))
	for i, obj := range objs {
		list[i] = obj
	}
	return env.Cluster.Ensure(ctx, list...)
}
