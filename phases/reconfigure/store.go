// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// unchanged fails if a ConfigMap's text has changed since the change was made from it. A label, say, doesn't matter.
func (r *Run) unchanged(ctx context.Context, env *step.Env, names ...string) error {
	for _, s := range storedTexts() {
		if !slices.Contains(names, s.name) {
			continue
		}
		text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, s.name, s.key)
		if err != nil {
			return err
		}
		if text != r.Stored[s.name] {
			return changedMeanwhile(trial.ConfigMap{Name: s.name})
		}
	}
	return nil
}

func changedMeanwhile(cm trial.ConfigMap) error { return node.ChangedSinceRead(cm.String()) }

// configMaps are the stored configurations, with this change. One that it doesn't change stays, whatever its form.
func (r *Run) configMaps(ctx context.Context, env *step.Env) ([]trial.ConfigMap, error) {
	if len(r.Fields) == 0 && (r.Reverts == nil || len(r.Reverts.ConfigMaps) == 0) {
		return nil, nil
	}
	list, err := r.clusterInfo(ctx, env)
	if err != nil {
		return nil, err
	}
	for _, s := range storedTexts() {
		live := node.ConfigMap(s.name)
		found, err := env.Cluster.Get(ctx, live)
		if err != nil {
			return nil, err
		}
		if !found || s.source == config.KubeProxySource && r.Stored[s.name] == "" { // left of a deleted kube-proxy
			continue
		}
		cm := trial.ConfigMap{Name: s.name, Key: s.key, Version: live.ResourceVersion, Before: live.Data[s.key], After: live.Data[s.key]}
		if before, known := r.before(s.name); known {
			cm.After = before
		} else if r.Changes(s.source) {
			if cm.After, err = s.text(env.Config); err != nil {
				return nil, err
			}
		}
		if s.source == config.ClusterSource && cm.Before != cm.After {
			if cm.Annotations, err = r.newNotes(ctx, env, live); err != nil {
				return nil, err
			}
		}
		list = append(list, cm)
	}
	return list, nil
}

type storedText struct {
	source, name, key string
	text              func(*config.Node) (string, error)
}

// storedTexts are the stored configurations, in the order in which they're written. kube-proxy's is part of its add-on.
func storedTexts() []storedText {
	of := func(objects func(*config.Node) ([]manifests.Object, error), key string) func(*config.Node) (string, error) {
		return func(n *config.Node) (string, error) {
			objs, err := objects(n)
			if err != nil {
				return "", err
			}
			return objs[0].(*corev1.ConfigMap).Data[key], nil
		}
	}
	proxy := func(n *config.Node) (string, error) {
		data, err := n.KubeProxyYAML()
		return strings.TrimSpace(string(data)), err
	}
	return []storedText{
		{config.KubeletSource, manifests.KubeletConfigMap, "kubelet", of(manifests.KubeletConfig, "kubelet")},
		{config.ClusterSource, manifests.KubeadmConfigMap, manifests.KubeadmConfigKey, of(manifests.KubeadmConfig, manifests.KubeadmConfigKey)},
		{config.KubeProxySource, manifests.KubeProxyConfigMap, "config.conf", proxy},
	}
}

// store writes the configuration last, so that until then everybody sees the state that is real everywhere.
func (r *Run) store(ctx context.Context, env *step.Env) error {
	if r.record == nil {
		return nil
	}
	if len(r.record.ConfigMaps) > 0 {
		if err := r.unchanged(ctx, env, manifests.KubeadmConfigMap, manifests.KubeletConfigMap); err != nil {
			return err
		}
		if err := sameClusterInfo(ctx, env, r.record); err != nil {
			return err
		}
	}
	if err := setStoring(ctx, env, r.record); err != nil {
		return err
	}
	r.stored = true
	return storeTexts(ctx, env, r.record, changedMeanwhile)
}

// setStoring notes the result of a proven change. From then on, it's stored, whatever happens to this run.
func setStoring(ctx context.Context, env *step.Env, record *trial.Record) error {
	if err := record.RecordHashes(env); err != nil {
		return err
	}
	for i := range record.ConfigMaps {
		if cm := &record.ConfigMaps[i]; cm.Name == manifests.KubeProxyConfigMap { // its add-on has written it
			live := node.ConfigMap(cm.Name)
			if _, err := env.Cluster.Get(ctx, live); err != nil {
				return err
			}
			cm.After = live.Data[cm.Key]
		}
	}
	return record.Set(env, trial.Storing)
}

// storeTexts writes a change's ConfigMaps. otherwise says what to do with one that somebody else has written meanwhile.
func storeTexts(ctx context.Context, env *step.Env, record *trial.Record, otherwise func(trial.ConfigMap) error) error {
	for _, cm := range record.ConfigMaps {
		if cm.Name == manifests.KubeProxyConfigMap || cm.Before == cm.After {
			continue
		}
		store := storeConfiguration
		if cm.Namespace == metav1.NamespacePublic {
			store = storeClusterInfo
		}
		if err := store(ctx, env, record, cm, otherwise); err != nil {
			return err
		}
	}
	return nil
}

func storeConfiguration(ctx context.Context, env *step.Env, record *trial.Record, cm trial.ConfigMap, otherwise func(trial.ConfigMap) error) error {
	env.UI.Printf("Storing the configuration in %s", cm)
	live := cm.Object()
	_, err := env.Cluster.Update(ctx, live, func() (bool, error) {
		switch {
		case live.Data[cm.Key] == cm.After: // by an attempt whose answer was lost
			return false, nil
		case live.ResourceVersion != cm.Version && live.Data[cm.Key] != cm.Before: // a label, say, doesn't matter
			return false, otherwise(cm)
		}
		live.Data[cm.Key] = cm.After
		// Other nodes' files are older than the record, so later runs there know that they may come from the configuration before.
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, edits.ChangedByOperator, beganAt(env, record).Format(time.RFC3339))
		for name, text := range cm.Annotations {
			if metav1.SetMetaDataAnnotation(&live.ObjectMeta, name, text); text == "" {
				delete(live.Annotations, name)
			}
		}
		return true, nil
	})
	return err
}

// beganAt is never in the future: after a change with a clock that was ahead, later records are ahead, too.
func beganAt(env *step.Env, record *trial.Record) time.Time {
	if now := env.Host.Now().UTC(); now.Before(record.Began) {
		return now
	}
	return record.Began.UTC()
}

func (r *Run) finish(ctx context.Context, env *step.Env) error {
	if err := r.end(ctx, env); err != nil {
		return err
	}
	return r.reportOtherNodes(ctx, env)
}

// end makes the change count.
func (r *Run) end(ctx context.Context, env *step.Env) error {
	if r.record != nil {
		if err := r.record.MarkCompleted(env); err != nil {
			return err
		}
	}
	if err := r.releaseLease(ctx, env); err != nil {
		return err
	}
	return trial.RemoveUnits(ctx, env, false) // until now, the watching unit would end a killed run's turn
}

// releaseLease also ends the turn of an earlier run, interrupted after its last restart.
func (r *Run) releaseLease(ctx context.Context, env *step.Env) error {
	if !r.leaseHeld {
		return releaseInterruptedLease(ctx, env)
	}
	r.leaseHeld = false
	return r.lease.Release(ctx, env, nil)
}

func releaseInterruptedLease(ctx context.Context, env *step.Env) error {
	if !env.Config.ControlPlane {
		return nil
	}
	return node.ReleaseInterruptedLease(ctx, env, node.ForConfiguration)
}
