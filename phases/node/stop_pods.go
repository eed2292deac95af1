// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// stopGrace is how long a component may take to stop: as long as its static Pod
// gives it by default (terminationGracePeriodSeconds).
const stopGrace = 30 * time.Second

// apiServerGrace is how long an API server may take. It stops listening and
// cleans up within half a second, then finishes the requests that it has, 99 %
// of which take less than a second (the service level objective of Kubernetes).
// After that only watches are left, which never end by themselves: without this
// limit the API is away for all of stopGrace. Clients open them again.
const apiServerGrace = 2 * time.Second

// stop writes the manifests of components and stops their containers, the last component first; the kubelet starts them
// again. Upgrades, rollbacks and renewals stop components only here, so it has the rules for it:
//
//   - This control plane has the turn.
//   - If etcd stops, this node's API server stops first, and both start together, whatever has changed. Without etcd, the API
//     server's requests hang, and so do its clients, such as a kubelet that starts meanwhile.
//   - etcd stops only if the other members can do without it. Otherwise nothing stops, and the error is a *QuorumError.
//
// by says who starts them. stopped are the components and what had to stop with them, etcd first.
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

// starter is who starts the components that were stopped.
type starter int

const (
	// thisKubelet, which runs, starts a component within a second or so. etcd has to stop sooner: it would wait seven seconds
	// for the watches of the next API server.
	thisKubelet starter = iota
	// nextKubelet is the one that is started when all have stopped. So there is time to prepare their clients for it.
	nextKubelet
)

// withAPIServer adds this node's API server to components of which one is etcd.
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

// giveUpLead makes another member of etcd the leader before this one stops, so that the cluster need not elect one. This
// node's API server has stopped by then: its writes would fail while the leader changes.
func giveUpLead(ctx context.Context, env *step.Env) error {
	member, found := etcdmember.Local(env.Host, env.Config)
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
	// The kubelet delays the start of a component that has crashed. If this fails, as when the kubelet removes the same
	// container, the start only takes longer.
	_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return nil
}

// GraceOf is how long a component may take to stop. An API server that was told
// how to shut down (--shutdown-delay-duration and others), such as to serve
// until load balancers send nothing more to it, has the time to do so:
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
