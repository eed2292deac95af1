// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ChangedByOperator annotates ConfigMaps kubeadm-config and kubelet-config with the time (RFC 3339) of an operator's last change
// to their configuration. Whatever of Slipway stores
// them sets it, because managedFields then name Slipway.
const ChangedByOperator = "slipway/changed-by-operator"

// ConfigurationChanged returns when anybody but kubeadm and Slipway last changed a key of a ConfigMap in kube-system, as far as
// the ConfigMap records it; the zero time if nobody has. Older files may come from another configuration.
func ConfigurationChanged(ctx context.Context, env *step.Env, name, key string) (time.Time, error) {
	cm := node.ConfigMap(name)
	if _, err := env.Cluster.Get(ctx, cm); err != nil {
		return time.Time{}, err
	}
	last, _ := time.Parse(time.RFC3339, cm.Annotations[ChangedByOperator]) // an invalid time counts as none
	for _, entry := range cm.ManagedFields {
		if entry.Time != nil && entry.Time.After(last) && owns(entry, key) && !slices.Contains([]string{"kubeadm", "slipway"}, entry.Manager) {
			last = entry.Time.Time
		}
	}
	return last, nil
}

// owns reports whether a manager of the ConfigMap has set a key:
// https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management
func owns(entry metav1.ManagedFieldsEntry, key string) bool {
	var fields struct {
		Data map[string]any `json:"f:data"`
	}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
		return false
	}
	_, found := fields.Data["f:"+key]
	return found
}

// NoteLastChange annotates a ConfigMap about to be stored with the time of an operator's last change, which other nodes need.
func NoteLastChange(ctx context.Context, env *step.Env, cm *corev1.ConfigMap, key string) error {
	changed, err := ConfigurationChanged(ctx, env, cm.Name, key)
	if err == nil && !changed.IsZero() {
		metav1.SetMetaDataAnnotation(&cm.ObjectMeta, ChangedByOperator, changed.UTC().Format(time.RFC3339))
	}
	return errors.WithMessagef(err, "the last change of ConfigMap %s", cm.Name)
}
