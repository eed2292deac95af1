// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	corev1 "k8s.io/api/core/v1"

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
	return ensure(ctx, env, objs...)
}

func runUploadKubeletConfig(ctx context.Context, env *Env) error {
	objs, err := manifests.KubeletConfig(env.Config)
	if err != nil {
		return err
	}
	if env.Again {
		if objs, err = withoutKubeletConfig(ctx, env, objs); err != nil {
			return err
		}
	}
	env.UI.Printf("Keeping the KubeletConfiguration in ConfigMap kube-system/kubelet-config")
	if err := keepUnknown(ctx, env, objs); err != nil {
		return err
	}
	if err := ensure(ctx, env, objs...); err != nil {
		return err
	}
	if env.Config.NodeLocalCRISocket() {
		return nil
	}
	return env.Cluster.MarkNode(ctx, env.Config.Name, cluster.Mark{
		Annotations: map[string]string{annotationCRISocket: env.Config.CRISocket},
	})
}

// withoutKubeletConfig leaves out the ConfigMap that is there: administrators
// edit it, for nodes to come.
func withoutKubeletConfig(ctx context.Context, env *Env, objs []manifests.Object) ([]manifests.Object, error) {
	var rest []manifests.Object
	for _, obj := range objs {
		if _, ok := obj.(*corev1.ConfigMap); ok {
			if there, err := exists(ctx, env, obj); err != nil {
				return nil, err
			} else if there {
				continue
			}
		}
		rest = append(rest, obj)
	}
	return rest, nil
}

// exists tells whether the API has an object of that kind and name. It is the
// administrators who ask, so they are given their role first.
func exists(ctx context.Context, env *Env, obj manifests.Object) (bool, error) {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return false, err
	}
	return env.Cluster.Get(ctx, obj.DeepCopyObject().(manifests.Object))
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
