// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// The kubelet's labels and annotations on containers. No API promises them, but crictl and others have always relied on them.
const (
	containerNameLabel = "io.kubernetes.container.name"
	podNamespaceLabel  = "io.kubernetes.pod.namespace"
	podNameLabel       = "io.kubernetes.pod.name"
	restartAnnotation  = "io.kubernetes.container.restartCount"
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
	return await(ctx, containerInterval, func(ctx context.Context) error {
		found, err := r.Containers(ctx, socket, namespace, name)
		if err == nil && !slices.ContainsFunc(found, accept) {
			err = errors.Errorf("container %s is not running", name)
		}
		return err
	})
}

func (r *Runtimes) AwaitRuntime(ctx context.Context, socket string) error {
	return await(ctx, containerInterval, func(ctx context.Context) error {
		info, err := r.RuntimeInfo(ctx, socket)
		if err == nil && !info.Ready {
			err = errors.Errorf("it is not ready: %s", info.Reason)
		}
		return err
	})
}

// await calls try until it succeeds. When ctx ends, it returns the last error with another cause.
func await(ctx context.Context, interval time.Duration, try func(context.Context) error) error {
	err := retry.Every(interval).Do(ctx, try)
	if gaveUp := (*retry.Error)(nil); errors.As(err, &gaveUp) {
		return gaveUp.Last
	}
	return err
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
	ctx, cancel := context.WithTimeout(ctx, grace+criAnswer)
	defer cancel()
	return r.order(socket, "stop container "+id, func(c client) error {
		_, err := c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())})
		return err
	})
}

// keptStates is how many containers of a name in a Pod are returned: the running container, and the last that exited.
const keptStates = 2

func (r *Runtimes) ContainerStates(ctx context.Context, socket, namespace string) (list []host.ContainerState, err error) {
	err = r.ask(ctx, socket, "list the containers", func(ctx context.Context, c client) error {
		answer, err := c.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: inNamespace(namespace)}})
		for _, found := range newest(answer.GetContainers()) {
			its, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: found.GetId()})
			switch {
			case err == nil:
				list = append(list, stateOf(found, its.GetStatus()))
			case !isGone(ctx, c, found.GetId(), err):
				return err
			}
		}
		return err
	})
	return list, err
}

// isGone reports whether err comes from a container that was removed since it was listed. Not every runtime says NotFound then.
func isGone(ctx context.Context, c client, id string, err error) bool {
	if status.Code(err) == codes.NotFound {
		return true
	}
	left, err := c.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{Id: id}})
	return err == nil && len(left.GetContainers()) == 0
}

func inNamespace(namespace string) map[string]string {
	if namespace == "" {
		return nil
	}
	return map[string]string{podNamespaceLabel: namespace}
}

// newest keeps the newest containers of each name in a Pod, the newest first.
func newest(list []*cri.Container) []*cri.Container {
	slices.SortFunc(list, func(a, b *cri.Container) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	seen := map[string]int{}
	return slices.DeleteFunc(list, func(c *cri.Container) bool {
		l := c.GetLabels()
		key := l[podNamespaceLabel] + "/" + l[podNameLabel] + "/" + l[containerNameLabel]
		seen[key]++
		return seen[key] > keptStates
	})
}

func stateOf(c *cri.Container, s *cri.ContainerStatus) host.ContainerState {
	restarts, _ := strconv.Atoi(c.GetAnnotations()[restartAnnotation]) // 0 if the annotation is missing
	return host.ContainerState{
		ID: c.GetId(), Name: c.GetLabels()[containerNameLabel], Pod: c.GetLabels()[podNameLabel],
		Namespace: c.GetLabels()[podNamespaceLabel], Image: s.GetImage().GetImage(),
		State:    strings.ToLower(strings.TrimPrefix(s.GetState().String(), "CONTAINER_")),
		Restarts: restarts,
		Created:  nanoTime(s.GetCreatedAt()), Finished: nanoTime(s.GetFinishedAt()),
		ExitCode: s.GetExitCode(), Reason: s.GetReason(), Message: s.GetMessage(), LogPath: s.GetLogPath(),
	}
}

// nanoTime converts a CRI time: nanoseconds since 1970, 0 for never.
func nanoTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

func (r *Runtimes) Sandboxes(ctx context.Context, socket, namespace string) (list []host.Sandbox, err error) {
	err = r.ask(ctx, socket, "list the sandboxes", func(ctx context.Context, c client) error {
		answer, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{Filter: &cri.PodSandboxFilter{LabelSelector: inNamespace(namespace)}})
		for _, s := range answer.GetItems() {
			list = append(list, host.Sandbox{
				ID: s.GetId(), Pod: s.GetMetadata().GetName(), Namespace: s.GetMetadata().GetNamespace(), UID: s.GetMetadata().GetUid(),
				Ready: s.GetState() == cri.PodSandboxState_SANDBOX_READY, Created: nanoTime(s.GetCreatedAt()),
			})
		}
		return err
	})
	return list, err
}
