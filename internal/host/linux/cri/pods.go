// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	stderrors "errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/parallel"
)

// podRemoval bounds the removal of one Pod. Its processes are killed at once, but the network plugin takes time.
const podRemoval = 2 * time.Minute

func (r *Runtimes) Pods(ctx context.Context, socket string) (pods []host.Pod, err error) {
	err = r.ask(ctx, socket, "list the Pods and containers", func(ctx context.Context, c client) error {
		answer, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		for _, s := range answer.GetItems() {
			pod := host.Pod{ID: s.GetId(), Namespace: s.GetMetadata().GetNamespace(), Name: s.GetMetadata().GetName()}
			// The network only decides the order of removal.
			if detail, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: pod.ID}); err == nil {
				mode := detail.GetStatus().GetLinux().GetNamespaces().GetOptions().GetNetwork()
				pod.HostNetwork = mode == cri.NamespaceMode_NODE
			}
			pods = append(pods, pod)
		}
		orphans, err := orphans(ctx, c, answer.GetItems())
		pods = append(pods, orphans...)
		return err
	})
	return pods, err
}

// orphans returns containers without any of the Pods. A runtime may create a container while it removes the container's Pod.
func orphans(ctx context.Context, client cri.RuntimeServiceClient, pods []*cri.PodSandbox) ([]host.Pod, error) {
	answer, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	var found []host.Pod
	for _, c := range answer.GetContainers() {
		if !slices.ContainsFunc(pods, func(p *cri.PodSandbox) bool { return p.GetId() == c.GetPodSandboxId() }) {
			found = append(found, host.Pod{ID: c.GetId(), Namespace: c.GetLabels()[podNamespaceLabel], Name: c.GetLabels()[podNameLabel], Orphan: true})
		}
	}
	return found, nil
}

// RemovePods tries failed Pods once more when the others are gone.
func (r *Runtimes) RemovePods(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error) {
	conn, err := r.get(socket)
	if err != nil {
		return nil, err
	}
	client := cri.NewRuntimeServiceClient(conn)
	own := slices.DeleteFunc(slices.Clone(pods), func(p host.Pod) bool { return p.HostNetwork })
	shared := slices.DeleteFunc(slices.Clone(pods), func(p host.Pod) bool { return !p.HostNetwork })
	removed, failed, _ := removePods(ctx, client, own)
	more, failedToo, _ := removePods(ctx, client, shared)
	last, _, errs := removePods(ctx, client, append(failed, failedToo...))
	for i, err := range errs {
		errs[i] = criFailure(socket, "remove Pods", podRemoval, err)
	}
	return slices.Concat(removed, more, last), stderrors.Join(errs...)
}

func removePods(ctx context.Context, client cri.RuntimeServiceClient, pods []host.Pod) (removed, failed []host.Pod, errs []error) {
	const together = 8
	type result struct {
		pod host.Pod
		err error
	}
	for _, r := range parallel.Map(pods, together, func(p host.Pod) result { return result{p, removePod(ctx, client, p)} }) {
		if r.err == nil {
			removed = append(removed, r.pod)
			continue
		}
		failed, errs = append(failed, r.pod), append(errs, r.err)
	}
	return removed, failed, errs
}

// removePod removes one Pod. Even if the network plugin fails, the Pod's processes are gone.
func removePod(ctx context.Context, client cri.RuntimeServiceClient, p host.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, podRemoval)
	defer cancel()
	var err error
	if p.Orphan {
		_, err = client.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: p.ID})
	} else if _, err = client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.ID}); err == nil {
		_, err = client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.ID})
	}
	if status.Code(err) == codes.NotFound {
		return nil
	}
	return err
}
