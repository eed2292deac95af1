// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/manifests"
)

// changedByOperator is the annotation of ConfigMap kubeadm-config with the time (RFC 3339) at which an operator last changed
// the ClusterConfiguration. An upgrade sets it when it stores the new version, because managedFields then name Slipway.
const changedByOperator = "slipway/changed-by-operator"

// configurationChanged returns when somebody other than kubeadm and Slipway last changed the ClusterConfiguration in the
// cluster, as far as the ConfigMap says it; the zero time if nobody has. Static Pods that are older than this may have been
// made with another configuration.
func configurationChanged(ctx context.Context, env *Env) (time.Time, error) {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: manifests.KubeadmConfigMap, Namespace: metav1.NamespaceSystem},
	}
	if _, err := env.Cluster.Get(ctx, cm); err != nil {
		return time.Time{}, err
	}
	last, _ := time.Parse(time.RFC3339, cm.Annotations[changedByOperator]) // one that is not a time counts as none
	for _, entry := range cm.ManagedFields {
		if entry.Time != nil && entry.Time.After(last) && ownsConfiguration(entry) && !slices.Contains([]string{"kubeadm", "slipway"}, entry.Manager) {
			last = entry.Time.Time
		}
	}
	return last, nil
}

// ownsConfiguration reports whether a manager of the ConfigMap has set the ClusterConfiguration:
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
func ownsConfiguration(entry metav1.ManagedFieldsEntry) bool {
	var fields struct {
		Data map[string]any `json:"f:data"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, found := fields.Data["f:"+manifests.KubeadmConfigKey]
	return found
}

// uploadUpgradedConfig stores the configuration with the new version. What the ConfigMap says of its last change goes with it
// in the same write: the other control planes, which are upgraded next, need it.
func uploadUpgradedConfig(ctx context.Context, env *Env) error {
	changed, err := configurationChanged(ctx, env)
	if err != nil {
		return errors.WithMessage(err, "the last change of the ClusterConfiguration")
	}
	annotations := map[string]string{}
	if !changed.IsZero() {
		annotations[changedByOperator] = changed.UTC().Format(time.RFC3339)
	}
	return uploadKubeadmConfig(ctx, env, annotations)
}
