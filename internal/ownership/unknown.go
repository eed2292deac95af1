// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

// storedIn returns which configuration document a ConfigMap stores, and under which key.
func storedIn(name string) (source, key string) {
	switch name {
	case "kubeadm-config":
		return config.ClusterSource, "ClusterConfiguration"
	case "kubelet-config":
		return config.KubeletSource, "kubelet"
	case "kube-proxy":
		return config.KubeProxySource, "config.conf"
	}
	return "", ""
}

// KeepUnknown adds to the ConfigMaps in objs the cluster's fields unknown to this version: other versions or tools may need them.
func (k Keeper) KeepUnknown(ctx context.Context, objs []manifests.Object) error {
	for _, obj := range objs {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			continue
		}
		source, key := storedIn(cm.Name)
		if source == "" {
			continue
		}
		if err := k.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		stored, err := cluster.ConfigMapText(ctx, k.Cluster, cm.Namespace, cm.Name, key)
		if err != nil {
			return err
		}
		if stored == "" {
			continue
		}
		data, warnings, err := config.Keep(source, []byte(stored), []byte(cm.Data[key]))
		if err != nil {
			return err
		}
		for _, w := range warnings {
			k.UI.Warnf("%s", w)
		}
		cm.Data[key] = string(data)
	}
	return nil
}
