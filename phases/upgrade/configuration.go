// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

func upgradeUploadConfig() step.Phase {
	return node.UploadConfigWith("Store the configuration with the new version in the cluster", common, storeConfiguration)
}

// unchanged fails if a stored configuration has another text than when this run read it: since then, the run may have waited for an
// answer and for the Lease. A label, say, doesn't matter.
func unchanged(ctx context.Context, env *step.Env) error {
	for _, s := range env.Config.Upgrade.Stored {
		text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, s.ConfigMap, s.Key)
		if err != nil {
			return err
		}
		if text != s.Text {
			return node.ChangedSinceRead(metav1.NamespaceSystem + "/" + s.ConfigMap)
		}
	}
	return nil
}

// storeConfiguration doesn't overwrite a text that somebody has changed since this run read it.
func storeConfiguration(ctx context.Context, env *step.Env, _, key string, objs []manifests.Object) error {
	wanted := objs[0].(*corev1.ConfigMap)
	if err := edits.NoteLastChange(ctx, env, wanted, key); err != nil {
		return err
	}
	stored, live := env.Config.Upgrade.Stored, node.ConfigMap(wanted.Name)
	i := slices.IndexFunc(stored, func(s config.StoredText) bool { return s.ConfigMap == wanted.Name })
	found, err := env.Cluster.Update(ctx, live, func() (bool, error) {
		text := live.Data[key] // an earlier attempt may have written it, if its answer was lost
		if i >= 0 && text != stored[i].Text && text != wanted.Data[key] {
			return false, node.ChangedSinceRead(wanted.Namespace + "/" + wanted.Name)
		}
		before := live.DeepCopy()
		for name, value := range wanted.Annotations {
			metav1.SetMetaDataAnnotation(&live.ObjectMeta, name, value)
		}
		if live.Data == nil {
			live.Data = map[string]string{}
		}
		maps.Copy(live.Data, wanted.Data)
		return !equality.Semantic.DeepEqual(before, live), nil
	})
	if err != nil {
		return err
	}
	if found {
		objs = objs[1:]
	}
	return env.Keeper().Ensure(ctx, objs...)
}
