// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

// storedIn says which document of the configuration a ConfigMap keeps, and
// under which key.
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

// keepUnknown adds to the ConfigMaps among objs what the cluster keeps there
// that this version does not know: other versions and tools may need it.
func keepUnknown(ctx context.Context, env *Env, objs []manifests.Object) error {
	for _, obj := range objs {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok {
			continue
		}
		source, key := storedIn(cm.Name)
		if source == "" {
			continue
		}
		if err := env.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		stored, err := configMapText(ctx, env.Cluster, cm.Namespace, cm.Name, key)
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
			env.UI.Warnf("%s", w)
		}
		cm.Data[key] = string(data)
	}
	return nil
}
