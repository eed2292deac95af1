// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
)

// The kubelet's labels on containers. No API promises them, but crictl and others have always relied on them.
const (
	containerNameLabel = "io.kubernetes.container.name"
	podNamespaceLabel  = "io.kubernetes.pod.namespace"
)

func (r *Runtimes) Containers(ctx context.Context, socket, namespace, name string) ([]host.Container, error) {
	found, err := r.containersIn(ctx, socket, namespace, name, cri.ContainerState_CONTAINER_RUNNING)
	var list []host.Container
	for _, c := range found {
		list = append(list, host.Container{ID: c.GetId(), Created: time.Unix(0, c.GetCreatedAt()), Image: c.GetImage().GetUserSpecifiedImage()})
	}
	return list, err
}

// containerInterval is how often AwaitContainer and AwaitRuntime ask; the runtime answers within milliseconds.
const containerInterval = 50 * time.Millisecond

func (r *Runtimes) AwaitContainer(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error {
	for {
		found, err := r.Containers(ctx, socket, namespace, name)
		if err == nil && slices.ContainsFunc(found, accept) {
			return nil
		}
		if err == nil {
			err = errors.Errorf("container %s is not running", name)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(containerInterval):
		}
	}
}

func (r *Runtimes) containersIn(ctx context.Context, socket, namespace, name string, state cri.ContainerState) (list []*cri.Container, err error) {
	err = r.ask(ctx, socket, "list the containers of "+namespace+"/"+name, func(ctx context.Context, c client) error {
		answer, err := c.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
			State:         &cri.ContainerStateValue{State: state},
			LabelSelector: map[string]string{containerNameLabel: name, podNamespaceLabel: namespace},
		}})
		list = answer.GetContainers()
		return err
	})
	return list, err
}

func (r *Runtimes) RemoveExited(ctx context.Context, socket, namespace, name string) error {
	exited, err := r.containersIn(ctx, socket, namespace, name, cri.ContainerState_CONTAINER_EXITED)
	for _, found := range exited {
		if err == nil {
			err = r.ask(ctx, socket, "remove container "+found.GetId(), func(ctx context.Context, c client) error {
				_, err := c.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: found.GetId()})
				return err
			})
		}
	}
	return err
}

func (r *Runtimes) StopContainer(ctx context.Context, socket, id string, grace time.Duration) error {
	conn, err := r.get(socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, grace+criAnswer)
	defer cancel()
	req := &cri.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())}
	if _, err := cri.NewRuntimeServiceClient(conn).StopContainer(ctx, req); err != nil {
		return criFailure(socket, "stop container "+id, err)
	}
	return nil
}

func (r *Runtimes) AwaitRuntime(ctx context.Context, socket string) error {
	ticker := time.NewTicker(containerInterval)
	defer ticker.Stop()
	var seen error
	for {
		info, err := r.RuntimeInfo(ctx, socket)
		switch {
		case err == nil && info.Ready:
			return nil
		case err == nil:
			seen = errors.Errorf("it is not ready: %s", info.Reason)
		case seen == nil || !errors.Is(err, context.DeadlineExceeded): // a deadline says nothing about the runtime
			seen = err
		}
		select {
		case <-ctx.Done():
			return seen
		case <-ticker.C:
		}
	}
}
