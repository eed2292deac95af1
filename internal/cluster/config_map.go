// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConfigMapText returns the value of a ConfigMap's key; empty if either is missing.
func ConfigMapText(ctx context.Context, c Cluster, namespace, name, key string) (string, error) {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
	}
	if found, err := c.Get(ctx, cm); err != nil || !found {
		return "", err
	}
	return cm.Data[key], nil
}
