// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

const (
	// kubeProxyKey is the key of kube-proxy's settings in its ConfigMap.
	kubeProxyKey = "config.conf"
	// restartedFor is the annotation by which kube-proxy is restarted: the hash of the settings that it is restarted for.
	restartedFor = "slipway/restarted-for-settings"
)

// upgradeKubeProxy upgrades kube-proxy. Settings that an earlier run has generated are generated again; others stay.
func upgradeKubeProxy(ctx context.Context, env *step.Env) error {
	list, err := Versions(env, manifests.KubeProxy)
	if err != nil {
		return err
	}
	daemonSet := FindVersions[*appsv1.DaemonSet](list)
	live := daemonSet.New.DeepCopyObject().(*appsv1.DaemonSet)
	found, err := env.Cluster.Get(ctx, live)
	if err != nil {
		return err
	}
	if !found {
		sayMissing(env, "DaemonSet kube-system/kube-proxy", "addon kube-proxy")
		return nil
	}
	if image := kubeProxyImage(daemonSet.New); image != kubeProxyImage(live) {
		env.UI.Printf("Upgrading kube-proxy to %s", image)
	}
	if list, err = keepKubeProxySettings(ctx, env, list); err != nil {
		return err
	}
	if err := restartForSettings(ctx, env, list); err != nil {
		return err
	}
	return UpgradeObjects(ctx, env, "addon kube-proxy", list)
}

func kubeProxyImage(d cluster.Object) string { return imageIn(podTemplate(d), "kube-proxy") }

// keepKubeProxySettings leaves out the ConfigMap if its settings are a user's: those that init was given, or that were
// edited since. It says which defaults of a new cluster they lack.
func keepKubeProxySettings(ctx context.Context, env *step.Env, list []cluster.Versions) ([]cluster.Versions, error) {
	settings := FindVersions[*corev1.ConfigMap](list)
	live := settings.New.DeepCopyObject().(*corev1.ConfigMap)
	found, err := env.Cluster.Get(ctx, live)
	if err != nil || !found {
		return list, err
	}
	if manifests.Generated(live) {
		old := settings.Old.(*corev1.ConfigMap)
		old.Data = live.Data
		for name := range old.Annotations {
			old.Annotations[name] = live.Annotations[name]
		}
		return list, nil
	}
	lacking, err := lackingDefaults(live.Data[kubeProxyKey], settings.New.(*corev1.ConfigMap).Data[kubeProxyKey])
	switch {
	case err != nil:
		env.UI.Warnf("keeping ConfigMap kube-system/%s, whose settings cannot be read: %v", live.Name, err)
	case len(lacking) > 0:
		env.UI.Warn(fmt.Sprintf("keeping ConfigMap kube-system/%s, whose settings are yours; a new cluster of %s would also have: %s",
			live.Name, env.Config.Cluster.KubernetesVersion, strings.Join(lacking, ", ")),
			"if you want them, add them with `kubectl -n kube-system edit configmap kube-proxy`, and run `kubectl -n kube-system rollout restart daemonset/kube-proxy`")
	default:
		env.UI.Printf("Keeping ConfigMap kube-system/%s, whose settings are yours", live.Name)
	}
	return slices.DeleteFunc(list, func(v cluster.Versions) bool { return v.New == settings.New }), nil
}

// restartForSettings makes kube-proxy restart if its settings change and its DaemonSet does not: it reads them only when it
// starts. The annotation is written to the ConfigMap together with the settings, and then to the Pods' template, so a run
// that is interrupted in between can be finished.
func restartForSettings(ctx context.Context, env *step.Env, list []cluster.Versions) error {
	settings, daemonSet := FindVersions[*corev1.ConfigMap](list), FindVersions[*appsv1.DaemonSet](list)
	if settings == nil {
		return nil
	}
	live, wanted := settings.New.DeepCopyObject().(*corev1.ConfigMap), settings.New.(*corev1.ConfigMap)
	found, err := env.Cluster.Get(ctx, live)
	if err != nil || !found {
		return err
	}
	changes, err := wouldChange(ctx, env, *settings)
	if err != nil {
		return err
	}
	rollsOut, err := wouldChange(ctx, env, *daemonSet)
	if err != nil {
		return err
	}
	restart := live.Annotations[restartedFor]
	if changes && !rollsOut {
		restart = manifests.ConfigHash(wanted)
		metav1.SetMetaDataAnnotation(&wanted.ObjectMeta, restartedFor, restart)
	}
	if restart != "" {
		metav1.SetMetaDataAnnotation(&podTemplate(daemonSet.New).ObjectMeta, restartedFor, restart)
	}
	return nil
}

// wouldChange reports whether an upgrade would change an object that the cluster has.
func wouldChange(ctx context.Context, env *step.Env, v cluster.Versions) (bool, error) {
	live := v.New.DeepCopyObject().(cluster.Object)
	found, err := env.Cluster.Get(ctx, live)
	if err != nil || !found {
		return false, err
	}
	return cluster.Merge(live, followImages(v, live))
}

// lackingDefaults returns the fields, as NAME: VALUE, that the defaults set and the settings do not.
func lackingDefaults(settings, defaults string) ([]string, error) {
	var have, want map[string]any
	if err := yaml.Unmarshal([]byte(settings), &have); err != nil {
		return nil, errors.WithStack(err)
	}
	if err := yaml.Unmarshal([]byte(defaults), &want); err != nil {
		return nil, errors.WithStack(err)
	}
	return lackingFields(have, want, ""), nil
}

func lackingFields(have, want map[string]any, prefix string) (fields []string) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if below, isMap := want[name].(map[string]any); isMap {
			there, _ := have[name].(map[string]any)
			fields = append(fields, lackingFields(there, below, prefix+name+".")...)
		} else if isZero(have[name]) && !isZero(want[name]) {
			fields = append(fields, fmt.Sprintf("%s%s: %v", prefix, name, want[name]))
		}
	}
	return fields
}

// isZero reports whether a scalar of kube-proxy's settings leaves the choice to kube-proxy.
func isZero(value any) bool {
	return value == nil || slices.Contains([]string{"", "0", "0s", "false"}, fmt.Sprint(value))
}
