// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// unchanged fails if a ConfigMap has changed since the change was made from it.
func (r *Run) unchanged(ctx context.Context, env *step.Env, names ...string) error {
	for _, name := range names {
		cm := node.ConfigMap(name)
		if _, err := env.Cluster.Get(ctx, cm); err != nil {
			return err
		}
		if cm.ResourceVersion != r.Versions[name] {
			return changedMeanwhile(name)
		}
	}
	return nil
}

func changedMeanwhile(name string) error {
	return fault.New("ConfigMap kube-system/"+name+" has been changed since this run read it", "run the same command again")
}

// store writes the configuration last, so that until then everybody sees the state that is real everywhere. kube-proxy's is part of
// its add-on.
func (r *Run) store(ctx context.Context, env *step.Env) error {
	if !r.Changes(config.ClusterSource) && !r.Changes(config.KubeletSource) {
		return nil
	}
	if err := r.unchanged(ctx, env, manifests.KubeadmConfigMap, manifests.KubeletConfigMap); err != nil {
		return err
	}
	if r.record != nil {
		if err := r.record.Set(env, trial.Storing); err != nil {
			return err
		}
	}
	r.stored = true
	for _, c := range []struct {
		source, key string
		objects     func(*config.Node) ([]manifests.Object, error)
	}{
		{config.KubeletSource, "kubelet", manifests.KubeletConfig},
		{config.ClusterSource, manifests.KubeadmConfigKey, manifests.KubeadmConfig},
	} {
		if !r.Changes(c.source) {
			continue
		}
		objs, err := c.objects(env.Config)
		if err != nil {
			return err
		}
		env.UI.Printf("Storing the configuration in %s", c.source)
		if err := r.write(ctx, env, objs[0].(*corev1.ConfigMap), c.key); err != nil {
			return err
		}
	}
	return nil
}

func (r *Run) write(ctx context.Context, env *step.Env, wanted *corev1.ConfigMap, key string) error {
	live := node.ConfigMap(wanted.Name)
	_, err := env.Cluster.Update(ctx, live, func() (bool, error) {
		switch {
		case live.Data[key] == wanted.Data[key]: // by an attempt whose answer was lost
			return false, nil
		case live.ResourceVersion != r.Versions[wanted.Name]:
			return false, changedMeanwhile(wanted.Name)
		}
		live.Data[key] = wanted.Data[key]
		metav1.SetMetaDataAnnotation(&live.ObjectMeta, edits.ChangedByOperator, r.began(env).UTC().Format(time.RFC3339))
		return true, nil
	})
	return err
}

// began is when this node's files began to change. Other nodes' files are older, so later runs there know that they may come from
// the configuration before.
func (r *Run) began(env *step.Env) time.Time {
	if r.record == nil {
		return env.Host.Now()
	}
	return r.record.Began
}

func (r *Run) finish(ctx context.Context, env *step.Env) error {
	if err := r.end(ctx, env); err != nil {
		return err
	}
	return r.sayOthers(ctx, env)
}

// end makes the change count.
func (r *Run) end(ctx context.Context, env *step.Env) error {
	for _, record := range []*trial.Record{r.record, r.earlier} {
		if record != nil && record.State != trial.Reverted {
			if err := record.Set(env, trial.Counts); err != nil {
				return err
			}
		}
	}
	if err := trial.Unguard(ctx, env, false); err != nil {
		return err
	}
	return r.endTurn(ctx, env)
}

// endTurn also ends the turn of an earlier run that was interrupted after its last restart.
func (r *Run) endTurn(ctx context.Context, env *step.Env) error {
	if !r.taken {
		return finishEarlierTurn(ctx, env)
	}
	r.taken = false
	return r.turn.Finish(ctx, env, nil)
}

func finishEarlierTurn(ctx context.Context, env *step.Env) error {
	if !env.Config.ControlPlane {
		return nil
	}
	return node.FinishEarlierTurn(ctx, env, node.ForConfiguration)
}
