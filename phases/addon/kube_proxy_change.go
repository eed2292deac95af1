// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ChangeKubeProxy changes the data of kube-proxy's ConfigMap in place, and restarts its Pods for it. A run that was interrupted between
// the two is finished by the next.
func ChangeKubeProxy(ctx context.Context, env *step.Env, change func(data map[string]string) (changed bool)) error {
	settings := node.ConfigMap(manifests.KubeProxyConfigMap)
	found, err := env.Cluster.Update(ctx, settings, func() (bool, error) {
		changed := change(settings.Data)
		if changed {
			metav1.SetMetaDataAnnotation(&settings.ObjectMeta, restartedFor, manifests.ConfigHash(settings))
		}
		return changed, nil
	})
	restart := settings.Annotations[restartedFor]
	if err != nil || !found || restart == "" {
		return err
	}
	pods := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}}
	changed := false
	_, err = env.Cluster.Update(ctx, pods, func() (bool, error) {
		template := &pods.Spec.Template.ObjectMeta
		changed = template.Annotations[restartedFor] != restart
		metav1.SetMetaDataAnnotation(template, restartedFor, restart)
		return changed, nil
	})
	if err == nil && changed {
		reportRollout(env, pods)
	}
	return err
}
