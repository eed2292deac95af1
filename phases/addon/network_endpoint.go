// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// MoveFlannel leads flannel to the cluster's next endpoint, and changes nothing else: its image stays. A Pod network that others have
// installed is theirs.
func MoveFlannel(ctx context.Context, env *step.Env) error {
	pods := flannelPods()
	from, to, moved := env.Config.Upgrade.Before.Endpoint(), env.Config.Endpoint(), false
	found, err := env.Cluster.Update(ctx, pods, func() (bool, error) {
		moved = manifests.ByFlannel(pods) && manifests.MoveFlannel(pods, from, to)
		return moved, nil
	})
	switch {
	case err != nil:
		return err
	case moved:
		reportRollout(env, pods)
	case !found || !manifests.ByFlannel(pods):
		env.UI.Printf("Leaving the Pod network as it is: it was not installed with --network flannel")
	case !manifests.MoveFlannel(pods, to, to):
		env.UI.Printf("Leaving flannel as it is: it does not lead to %s", from)
	}
	return nil
}

// ChangeFlannel changes the host:port at which flannel finds the API, if --network has installed it.
func ChangeFlannel(ctx context.Context, env *step.Env, change func(endpoint string) string) error {
	pods, moved := flannelPods(), false
	_, err := env.Cluster.Update(ctx, pods, func() (bool, error) {
		from := manifests.FlannelEndpoint(pods)
		to := change(from)
		moved = manifests.ByFlannel(pods) && to != from && manifests.MoveFlannel(pods, from, to)
		return moved, nil
	})
	if err == nil && moved {
		reportRollout(env, pods)
	}
	return err
}

func flannelPods() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: manifests.FlannelNamespace, Name: manifests.FlannelDaemonSet}}
}
