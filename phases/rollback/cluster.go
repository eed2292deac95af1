// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// controlPlanesAhead names the control planes whose API server is newer than this node's will be, or of unknown version.
func (r *Rollback) controlPlanesAhead(ctx context.Context, env *step.Env) ([]string, error) {
	servers, err := addon.APIServers(ctx, env)
	if err != nil {
		return nil, err
	}
	before, err := version.ParseSemantic(r.Backup.From)
	if err != nil {
		return nil, errors.WithStack(err)
	}
	var ahead []string
	for _, node := range slices.Sorted(maps.Keys(servers)) {
		tag := "unknown"
		if pod := servers[node]; pod != nil {
			tag = cmp.Or(manifests.TagOf(manifests.ContainerImage(pod.Spec.Containers, manifests.APIServerName)), tag)
		}
		if runs, err := manifests.TagVersion(tag); err != nil || before.LessThan(runs) {
			ahead = append(ahead, node+" ("+tag+")")
		}
	}
	return ahead, nil
}

// changeShared runs change unless another control plane is newer: the newest version decides what all nodes share.
func (r *Rollback) changeShared(ctx context.Context, env *step.Env, what string, change func(context.Context, *step.Env) error) error {
	switch {
	case r.before[manifests.APIServerName] == nil:
		return nil
	case r.Backup.From == "":
		env.UI.Warn(fmt.Sprintf("leaving %s as it is: the API server goes back to an unknown version (%s)", what, manifests.ImageOf(r.before[manifests.APIServerName])),
			"put it back yourself once all control planes are back")
		return nil
	}
	ahead, err := r.controlPlanesAhead(ctx, env)
	if err != nil {
		return err
	}
	if len(ahead) > 0 {
		env.UI.Printf("Leaving %s as it is until the last control plane goes back to %s. Still newer: %s", what, r.Backup.From, strings.Join(ahead, ", "))
		return nil
	}
	return change(ctx, env)
}

// storeConfiguration puts back the version in the stored ClusterConfiguration, used by joins and upgrades, and the kubelets'
// settings if the upgrade generated them. Everything else stays, because it may have been edited since.
func (r *Rollback) storeConfiguration(ctx context.Context, env *step.Env) error {
	return r.changeShared(ctx, env, "the stored configuration", func(ctx context.Context, env *step.Env) error {
		stored := node.ConfigMap(manifests.KubeadmConfigMap)
		changed, err := updateConfigMap(ctx, env, stored, func() (bool, error) {
			changed, err := setVersion(stored, r.Backup.From)
			if err == nil && changed {
				err = edits.NoteLastChange(ctx, env, stored, manifests.KubeadmConfigKey)
			}
			return changed, err
		})
		if err != nil {
			return err
		}
		if changed {
			env.UI.Printf("The stored ClusterConfiguration has version %s again", r.Backup.From)
		}
		return r.storeKubelet(ctx, env)
	})
}

// updateConfigMap reports whether change changed an existing ConfigMap.
func updateConfigMap(ctx context.Context, e *step.Env, cm *corev1.ConfigMap, change func() (bool, error)) (changed bool, err error) {
	_, err = e.Cluster.Update(ctx, cm, func() (bool, error) {
		changed, err = change()
		return changed, err
	})
	return changed, err
}

func setVersion(cm *corev1.ConfigMap, wanted string) (bool, error) {
	const key = "ClusterConfiguration"
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(cm.Data[key]), &doc); err != nil {
		return false, errors.Wrap(err, config.ClusterSource)
	}
	if doc == nil || doc["kubernetesVersion"] == wanted {
		return false, nil
	}
	doc["kubernetesVersion"] = wanted
	data, err := yaml.Marshal(doc)
	if err != nil {
		return false, err
	}
	cm.Data[key] = string(data)
	return true, nil
}

// storeKubelet puts back the kubelets' settings from this node's backup. Only the first upgraded control plane's backup has the
// old settings, because its `upgrade apply` then stored the new settings for all.
func (r *Rollback) storeKubelet(ctx context.Context, env *step.Env) error {
	if r.Backup.KubeletConfiguration == "" {
		return nil
	}
	recorded, err := config.StoredVersion([]byte(r.Backup.ClusterConfiguration))
	if err == nil && recorded == r.Backup.To && recorded != r.Backup.From {
		env.UI.Printf("Leaving the stored KubeletConfiguration as it is: the control plane on which `slipway upgrade apply` ran has the previous one; " +
			"run `slipway upgrade rollback` there, or again if it is back already")
		return nil
	}
	stored := node.ConfigMap(manifests.KubeletConfigMap)
	changed, err := updateConfigMap(ctx, env, stored, func() (bool, error) {
		if !manifests.Generated(stored) || stored.Data["kubelet"] == r.Backup.KubeletConfiguration {
			return false, nil
		}
		stored.Data["kubelet"] = r.Backup.KubeletConfiguration
		manifests.MarkGenerated(stored)
		return true, nil
	})
	if changed && err == nil {
		env.UI.Printf("The stored KubeletConfiguration is the previous one again")
	}
	return err
}

func (r *Rollback) unlessKubeProxy(env *step.Env) string {
	if why := node.UnlessControlPlane(env); why != "" {
		return why
	}
	return addon.ProxyDisabled(env)
}

// putBackKubeProxy keeps kube-proxy no newer than its API server, with its present settings. It leaves CoreDNS alone, which may
// be newer, and whose Corefile may have been migrated.
func (r *Rollback) putBackKubeProxy(ctx context.Context, env *step.Env) error {
	return r.changeShared(ctx, env, "kube-proxy", func(ctx context.Context, env *step.Env) error {
		list, err := addon.Versions(env, manifests.KubeProxy)
		if err != nil {
			return err
		}
		daemonSet := addon.FindVersions[*appsv1.DaemonSet](list)
		found, err := env.Cluster.Get(ctx, daemonSet.New.DeepCopyObject().(cluster.Object))
		if err != nil || !found {
			return err
		}
		return addon.UpgradeObjects(ctx, env, "addon kube-proxy", []cluster.Versions{*daemonSet})
	})
}

// finish records the end of the rollback, so the next rollback is of a later upgrade.
func (r *Rollback) finish(_ context.Context, env *step.Env) error {
	if r.Progress.Finished.IsZero() {
		last, err := upgrading.LastBackupTime(env.Host, node.BackupRoot(env))
		if err != nil {
			return err
		}
		r.Progress.Finish(env.Host.Now(), last)
		if err := r.Progress.Write(env.Host, node.BackupRoot(env)); err != nil {
			return err
		}
	}
	if r.before[manifests.APIServerName] != nil {
		env.UI.Nextf("This control plane runs Kubernetes %s", r.from())
		env.UI.Nextf("Kubelets must not be newer. On each node with a newer kubelet, install kubelet %s, and restart it: systemctl daemon-reload && systemctl restart kubelet", cmp.Or(r.Backup.From, "of the same version"))
		env.UI.Nextf("Run `slipway upgrade rollback` on each other upgraded node, one at a time: control planes first, last of them the node where you ran `slipway upgrade apply`, then workers")
	}
	if r.restore != nil {
		r.reportAfterRestore(env)
	}
	return nil
}

func (r *Rollback) reportAfterRestore(env *step.Env) {
	env.UI.Nextf("etcd's data from before the restore is in %s; `slipway etcd prune` removes it", r.Progress.OldData)
	node.SayRejoin(env, r.restore.Names())
}
