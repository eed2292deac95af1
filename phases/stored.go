// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

// StoredConfiguration returns the ClusterConfiguration that the cluster keeps, as YAML.
func StoredConfiguration(ctx context.Context, c cluster.Cluster) ([]byte, error) {
	text, err := cluster.ConfigMapText(ctx, c, metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration")
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errors.Errorf("%s does not exist or has no ClusterConfiguration; `slipway init phase upload-config` creates it", config.ClusterSource)
	}
	return []byte(text), nil
}
