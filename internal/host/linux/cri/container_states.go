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

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
)

// More of the kubelet's labels and annotations on containers.
const (
	podNameLabel      = "io.kubernetes.pod.name"
	restartAnnotation = "io.kubernetes.container.restartCount"
)

// keptStates is how many containers of a name in a Pod are returned: the running container, and the last exited one.
const keptStates = 2

func (r *Runtimes) ContainerStates(ctx context.Context, socket, namespace string) (list []host.ContainerState, err error) {
	err = r.ask(ctx, socket, "list the containers", func(ctx context.Context, c client) error {
		answer, err := c.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{LabelSelector: inNamespace(namespace)}})
		for _, found := range newest(answer.GetContainers()) {
			status, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: found.GetId()})
			if err != nil {
				continue // it was just removed
			}
			list = append(list, stateOf(found, status.GetStatus()))
		}
		return err
	})
	return list, err
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
