// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// starter says who starts the stopped components.
type starter int

const (
	// thisKubelet runs, and starts a component within a second or so. etcd must stop sooner, or else it waits seven seconds for
	// the next API server's watches.
	thisKubelet starter = iota
	// nextKubelet starts once all have stopped, so there's time to prepare their clients.
	nextKubelet
)

// stopStaticPods writes components' manifests and stops their containers, the last component first; a kubelet starts them again.
// ReplaceStaticPods, RollBack and RestartStale stop a node in service only here, so these rules hold for all of them:
//
//   - This control plane has the turn.
//   - If etcd stops, this node's API server stops first, and both start together, whatever has changed. Without etcd, the API
//     server's requests hang, and so do its clients, such as a kubelet that starts meanwhile.
//   - etcd stops only if the other members can do without it. Otherwise nothing stops, and the error is a *QuorumError.
//   - No manifest is overwritten that somebody has changed since the run read it.
//
// stopped has the components, and everything that had to stop with them, etcd first.
func stopStaticPods(ctx context.Context, env *step.Env, turn Lease, components []Replacement, by starter) (stopped []Replacement, err error) {
	if components, err = withAPIServer(env, components); err != nil {
		return components, err
	}
	release := func() {}
	defer func() { release() }()
	for i, c := range slices.Backward(components) { // the API server before etcd
		if by == nextKubelet {
			prepareClients(ctx, env, c.Name)
		}
		if i == len(components)-1 { // the first to stop
			if err := CheckEtcdCanStop(ctx, env, components); err != nil {
				return components, err
			}
			if ctx.Err() != nil {
				return components, context.Cause(ctx)
			}
			if err := checkUnedited(env, components...); err != nil {
				return components, err
			}
			if by == nextKubelet {
				release = keepKubeletDown(ctx, env)
			}
		}
		if err := replaceStaticPod(ctx, env, turn, c); err != nil {
			return components, err
		}
	}
	return components, nil
}

// withAPIServer adds this node's API server to components that include etcd.
func withAPIServer(env *step.Env, components []Replacement) ([]Replacement, error) {
	if !HasComponent(components, manifests.EtcdName) || HasComponent(components, manifests.APIServerName) {
		return components, nil
	}
	manifest, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(manifests.APIServerName))
	if err != nil || manifest == nil {
		return components, err
	}
	env.UI.Printf("Restarting %s with %s, which it needs", manifests.APIServerName, manifests.EtcdName)
	at := slices.IndexFunc(components, named(manifests.EtcdName)) + 1
	return slices.Insert(slices.Clone(components), at, Replacement{Name: manifests.APIServerName, Before: manifest, Wanted: manifest}), nil
}

// prepareTimeout bounds prepareClients: the API server writes its key within ten seconds, then kube-proxy needs its time.
const prepareTimeout = proxyDelay + 20*time.Second

// prepareClients moves a component's clients elsewhere before it stops, so they don't notice, unless it's already down. A failure
// only causes a warning.
func prepareClients(ctx context.Context, env *step.Env, component string) {
	prepare, missed := withdrawEndpoint, "some clients may have to connect again"
	switch component {
	case manifests.APIServerName:
	case manifests.EtcdName:
		prepare, missed = transferLeadership, "etcd will elect another leader while this member restarts"
	default:
		return
	}
	if !IsHealthy(ctx, env, component) {
		return
	}
	limited, cancel := context.WithTimeoutCause(ctx, prepareTimeout, errors.Errorf("not within %s", prepareTimeout))
	defer cancel()
	if err := prepare(limited, env); err != nil && ctx.Err() == nil {
		ui.WarnError(env.UI, errors.WithMessage(err, missed))
	}
}

// transferLeadership makes another member of etcd the leader before this member stops, to avoid an election. This node's API
// server has stopped by then: its writes would fail while the leader changes.
func transferLeadership(ctx context.Context, env *step.Env) error {
	if _, found := thisnode.EtcdMember(env.Host, env.Config.Paths); !found {
		return nil
	}
	own, _ := OwnIdentity(env)
	moved, err := env.Etcd.MoveLeader(ctx, own)
	if moved {
		env.UI.Printf("Another member leads etcd now")
	}
	return err
}

// replaceStaticPod writes a component's manifest, upon which the kubelet may replace its Pod, and stops the containers made from
// the previous manifest. The components that need it have been stopped already.
func replaceStaticPod(ctx context.Context, env *step.Env, turn Lease, c Replacement) error {
	if ctx.Err() != nil { // before the kubelet sees the new manifest
		return context.Cause(ctx)
	}
	if err := checkUnedited(env, c); err != nil {
		return err
	}
	grace := GraceOf(env, c.Name) // from the running manifest
	file := ownership.File{Path: env.Config.Paths.StaticPod(c.Name), Data: c.Wanted, Mode: 0o600}
	if _, err := file.Write(env.Host); err != nil {
		return err
	}
	turn.KeepOnFailure()
	return StopContainers(ctx, env, c.Name, grace)
}

// editedError says that somebody has changed a component's manifest since this run read it.
type editedError struct{ path string }

func (e *editedError) Error() string { return e.path + " has been changed since this run read it" }

func (e *editedError) Remedy() string {
	return "run the same command again, which looks for edits again"
}

func checkUnedited(env *step.Env, components ...Replacement) error {
	for _, c := range components {
		path := env.Config.Paths.StaticPod(c.Name)
		now, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return err
		}
		if c.Before != nil && !bytes.Equal(now, c.Before) {
			return &editedError{path}
		}
	}
	return nil
}

// StopContainers stops a component's containers through the container runtime, and kills them after grace. It asks nobody, neither
// the Lease's holder nor etcd's other members: nodes in service go through stopStaticPods. Its direct callers have a node that's
// out of service, an unfinished control plane or one whose etcd is restored.
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

// StopGrace is how long a component may take to stop: its static Pod's default (terminationGracePeriodSeconds).
const StopGrace = 30 * time.Second

// apiServerGrace is how long an API server may take. It stops listening and cleans up within half a second, then finishes its
// requests; 99 % take less than a second (Kubernetes' service level objective). Then only watches remain, which never end by
// themselves, and clients open them again. Without this limit, the API would be away for all of StopGrace.
const apiServerGrace = 2 * time.Second

// GraceOf is how long a component may take to stop. An API server with flags for its shutdown (--shutdown-delay-duration and
// others), such as to serve until load balancers stop using it, gets the time for it:
// https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/
func GraceOf(env *step.Env, component string) time.Duration {
	if component != manifests.APIServerName {
		return StopGrace
	}
	pod, err := env.Host.ReadFile(env.Config.Paths.StaticPod(component))
	if err != nil || strings.Contains(string(pod), "--shutdown-") {
		return StopGrace
	}
	return apiServerGrace
}
