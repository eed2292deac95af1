// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

// StoredConfiguration returns the ClusterConfiguration that the cluster keeps,
// as YAML.
func StoredConfiguration(ctx context.Context, c cluster.Cluster) ([]byte, error) {
	text, err := configMapText(ctx, c, metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration")
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errors.Errorf("%s does not exist or has no ClusterConfiguration; `slipway init phase upload-config` makes it", config.ClusterSource)
	}
	return []byte(text), nil
}

// configMapText returns what a ConfigMap has under a key, empty where either is
// missing.
func configMapText(ctx context.Context, c cluster.Cluster, namespace, name, key string) (string, error) {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
	}
	if found, err := c.Get(ctx, cm); err != nil || !found {
		return "", err
	}
	return cm.Data[key], nil
}
