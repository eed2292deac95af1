// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// configMaps writes the address wherever the cluster names this control plane: as the controlPlaneEndpoint, as a name in certificates,
// as the server for nodes that join, for kube-proxy and for flannel.
func (m *Move) configMaps(ctx context.Context, env *step.Env) error {
	info := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespacePublic, Name: manifests.ClusterInfoName}}
	for _, c := range []struct {
		*corev1.ConfigMap
		key string // of a configuration, whose changes by operators other nodes need to know
	}{{node.ConfigMap(manifests.KubeadmConfigMap), manifests.KubeadmConfigKey}, {node.ConfigMap(manifests.KubeletConfigMap), "kubelet"}, {info, ""}} {
		changed := false
		_, err := env.Cluster.Update(ctx, c.ConfigMap, func() (bool, error) {
			if changed = m.change(c.Data); !changed || c.key == "" {
				return changed, nil
			}
			return true, edits.NoteLastChange(ctx, env, c.ConfigMap, c.key)
		})
		if err != nil {
			return err
		}
		if changed {
			env.UI.Printf("Wrote the address to ConfigMap %s/%s", c.Namespace, c.Name)
		}
	}
	if err := addon.ChangeKubeProxy(ctx, env, m.change); err != nil {
		return err
	}
	return addon.ChangeFlannel(ctx, env, m.ReplaceAddresses)
}

func (m *Move) change(data map[string]string) (changed bool) {
	for key, text := range data {
		if wanted := m.ReplaceAddresses(text); wanted != text {
			data[key], changed = wanted, true
		}
	}
	return changed
}

// removeFormerEndpoints takes the former addresses out of the Service kubernetes. A stopped API server does so itself, but not a
// killed one.
func (m *Move) removeFormerEndpoints(ctx context.Context, env *step.Env) error {
	for _, from := range m.From {
		if err := node.ForgetEndpoint(ctx, env, from.String()); err != nil {
			return err
		}
	}
	return nil
}
