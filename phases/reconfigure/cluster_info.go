// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

const (
	clusterInfoKey = tokenapi.KubeConfigKey
)

// clusterInfo is ConfigMap cluster-info, which leads joining nodes, with the cluster's next endpoint; none if it leads elsewhere.
func (r *Run) clusterInfo(ctx context.Context, env *step.Env) ([]trial.ConfigMap, error) {
	if !r.MovesEndpoint() {
		return nil, nil
	}
	live := manifests.ClusterInfo(nil)
	found, err := env.Cluster.Get(ctx, live)
	text := live.Data[clusterInfoKey]
	if err != nil || !found || text == "" {
		return nil, err
	}
	cm := trial.ConfigMap{Namespace: live.Namespace, Name: live.Name, Key: clusterInfoKey, Before: text}
	const remedy = "if it was to follow the endpoint, delete it and run `slipway init phase bootstrap-token` on a control plane"
	switch before, known := r.before(live.Name); {
	case ptr.Deref(live.Immutable, false):
		env.UI.Warn("keeping ConfigMap "+cm.String()+", which is immutable", remedy)
		return nil, nil
	case known:
		cm.After = before
		return []trial.ConfigMap{cm}, nil
	}
	if at, err := kubeconfig.Endpoint([]byte(text)); err == nil && slices.Contains(r.Former, at) {
		after, err := kubeconfig.AtServer([]byte(text), "https://"+env.Config.Endpoint())
		cm.After = string(after)
		return []trial.ConfigMap{cm}, errors.Wrap(err, cm.String())
	}
	env.UI.Warn("keeping ConfigMap "+cm.String()+", which does not lead to the former endpoint", remedy)
	return nil, nil
}

// sameClusterInfo fails if somebody has changed cluster-info since the change began: then it can still be put back.
func sameClusterInfo(ctx context.Context, env *step.Env, record *trial.Record) error {
	for _, cm := range record.ConfigMaps {
		if cm.Name != manifests.ClusterInfoName {
			continue
		}
		live := cm.Object()
		if _, err := env.Cluster.Get(ctx, live); err != nil {
			return err
		}
		if text := live.Data[cm.Key]; text != cm.Before && text != cm.After {
			return changedMeanwhile(cm)
		}
	}
	return nil
}

// storeClusterInfo also signs it: the controller manager would only seconds later, and until then nodes couldn't join.
func storeClusterInfo(ctx context.Context, env *step.Env, _ *trial.Record, cm trial.ConfigMap, otherwise func(trial.ConfigMap) error) error {
	_, signers, err := env.Tokens().Missing(ctx, nil)
	if err != nil {
		return err
	}
	env.UI.Printf("Writing the new endpoint for joining nodes to %s", cm)
	live := cm.Object()
	_, err = env.Cluster.Update(ctx, live, func() (bool, error) {
		had := live.Data[cm.Key]
		if had != cm.Before && had != cm.After {
			return false, otherwise(cm)
		}
		live.Data[cm.Key] = cm.After
		signed, err := manifests.SignClusterInfo(live, signers)
		return signed || had != cm.After, err
	})
	return err
}

// newNotes are the annotations of ConfigMap kubeadm-config with another value after this change.
func (r *Run) newNotes(ctx context.Context, env *step.Env, live *corev1.ConfigMap) (map[string]string, error) {
	since, err := edits.ConfigurationChanged(ctx, env, live.Name, manifests.KubeadmConfigKey)
	if err != nil {
		return nil, err
	}
	had := live.Annotations[reconfiguring.PreviousConfiguration]
	notes := map[string]string{
		reconfiguring.PreviousConfiguration: reconfiguring.PreviousNote(had, live.Data[manifests.KubeadmConfigKey], since, env.Host.Now()),
	}
	for name, text := range r.Notes() {
		if live.Annotations[name] != text {
			notes[name] = text
		}
	}
	return notes, nil
}
