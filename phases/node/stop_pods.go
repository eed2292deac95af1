// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// stopGrace is how long a component may take to stop: its static Pod's default (terminationGracePeriodSeconds).
const stopGrace = 30 * time.Second

// apiServerGrace is how long an API server may take. It stops listening and cleans up within half a second, then finishes its
// requests; 99 % take less than a second (Kubernetes' service level objective). Then only watches remain, which never end by
// themselves, and clients open them again. Without this limit, the API would be away for all of stopGrace.
const apiServerGrace = 2 * time.Second

// stop writes components' manifests and stops their containers, the last component first; the kubelet starts them again.
// Upgrades, rollbacks and renewals stop components only here, so stop has the rules:
//
//   - This control plane has the turn.
//   - If etcd stops, this node's API server stops first, and both start together, whatever has changed. Without etcd, the API
//     server's requests hang, and so do its clients, such as a kubelet that starts meanwhile.
//   - etcd stops only if the other members can do without it. Otherwise nothing stops, and the error is a *QuorumError.
//
// by says who starts the components. stopped has them, and everything that had to stop with them, etcd first.
func (t Turn) stop(ctx context.Context, env *step.Env, components []ComponentUpgrade, by starter) (stopped []ComponentUpgrade, err error) {
	if components, err = withAPIServer(env, components); err != nil {
		return components, err
	}
	release := func() {}
	defer func() { release() }()
	for i, c := range slices.Backward(components) { // the API server before etcd
		if by == nextKubelet {
			prepareStop(ctx, env, c.Name)
		}
		if i == len(components)-1 { // the first to stop
			if err := SpareEtcd(ctx, env, components); err != nil {
				return components, err
			}
			if ctx.Err() != nil {
				return components, context.Cause(ctx)
			}
			if by == nextKubelet {
				release = withoutKubelet(ctx, env)
			}
		}
		if err := t.replace(ctx, env, c); err != nil {
			return components, err
		}
	}
	return components, nil
}

// starter says who starts the stopped components.
type starter int

const (
	// thisKubelet runs, and starts a component within a second or so. etcd must stop sooner, or else it waits seven seconds for
	// the next API server's watches.
	thisKubelet starter = iota
	// nextKubelet starts once all have stopped, so there's time to prepare their clients.
	nextKubelet
)

// withAPIServer adds this node's API server to components that include etcd.
func withAPIServer(env *step.Env, components []ComponentUpgrade) ([]ComponentUpgrade, error) {
	if !Contains(components, manifests.EtcdName) || Contains(components, manifests.APIServerName) {
		return components, nil
	}
	manifest, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, manifests.APIServerName))
	if err != nil || manifest == nil {
		return components, err
	}
	env.UI.Printf("Restarting %s with %s, which it needs", manifests.APIServerName, manifests.EtcdName)
	at := slices.IndexFunc(components, named(manifests.EtcdName)) + 1
	return slices.Insert(slices.Clone(components), at, ComponentUpgrade{Name: manifests.APIServerName, Before: manifest, Wanted: manifest}), nil
}

// giveUpLead makes another member of etcd the leader before this one stops, to avoid an election. This node's API server has
// stopped by then: its writes would fail while the leader changes.
func giveUpLead(ctx context.Context, env *step.Env) error {
	member, found := thisnode.EtcdMember(env.Host, env.Config)
	if !found {
		return nil
	}
	moved, err := env.Etcd.MoveLeader(ctx, member.PeerURL)
	if moved {
		env.UI.Printf("Another member leads etcd now")
	}
	return err
}

func StopContainers(ctx context.Context, env *step.Env, component string, grace time.Duration) error {
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	if err != nil {
		return err
	}
	for _, container := range running {
		if err := env.Host.StopContainer(ctx, env.Config.CRISocket, container.ID, grace); err != nil {
			return err
		}
	}
	// The kubelet delays the restart of crashed components. A failure, such as by the kubelet's own removal, only costs time.
	_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return nil
}

// GraceOf is how long a component may take to stop. An API server with flags for its shutdown (--shutdown-delay-duration and
// others), such as to serve until load balancers stop using it, gets the time for it:
// https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/
func GraceOf(env *step.Env, component string) time.Duration {
	if component != manifests.APIServerName {
		return stopGrace
	}
	pod, err := env.Host.ReadFile(thisnode.StaticPodPath(env.Config, component))
	if err != nil || strings.Contains(string(pod), "--shutdown-") {
		return stopGrace
	}
	return apiServerGrace
}
