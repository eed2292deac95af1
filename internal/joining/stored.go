// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"context"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

// StoredConfiguration returns the cluster's stored ClusterConfiguration, as YAML.
func StoredConfiguration(ctx context.Context, c cluster.Cluster) ([]byte, error) {
	text, err := cluster.ConfigMapText(ctx, c, metav1.NamespaceSystem, manifests.KubeadmConfigMap, manifests.KubeadmConfigKey)
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errors.Errorf("%s does not exist or has no ClusterConfiguration; on a control plane, `slipway init phase upload-config kubeadm --config FILE` creates it, with the configuration that the cluster was made with", config.ClusterSource)
	}
	return []byte(text), nil
}

// storedKubelet returns the cluster's stored KubeletConfiguration.
func storedKubelet(ctx context.Context, c cluster.Cluster) ([]byte, error) {
	text, err := cluster.ConfigMapText(ctx, c, metav1.NamespaceSystem, "kubelet-config", "kubelet")
	if err != nil {
		return nil, err
	}
	if text != "" {
		return []byte(text), nil
	}
	return nil, errors.Errorf("%s does not exist or has no key \"kubelet\"; on a control plane, `slipway init phase upload-config kubelet --config FILE` creates it, with the configuration that the cluster was made with", config.KubeletSource)
}

// sharedCertificates reads the Secret uploaded by control planes for others; nil if there's none.
func sharedCertificates(ctx context.Context, api cluster.Cluster) (map[string][]byte, error) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-certs", Namespace: metav1.NamespaceSystem}}
	found, err := api.Get(ctx, secret)
	if err != nil || !found {
		return nil, err
	}
	return secret.Data, nil
}
