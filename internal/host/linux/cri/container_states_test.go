// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

// podCRI has four containers of one name, the newest of them running, and two others that disappear while they're queried.
type podCRI struct {
	cri.UnimplementedRuntimeServiceServer
	broken bool // it can't say anything about the newest
}

func (podCRI) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	answer := &cri.ListContainersResponse{}
	add := func(id, name string, created int64) {
		labels := map[string]string{containerNameLabel: name, podNameLabel: name + "-cp-1", podNamespaceLabel: "kube-system"}
		answer.Containers = append(answer.Containers, &cri.Container{
			Id: id, CreatedAt: created, Labels: labels, Annotations: map[string]string{restartAnnotation: "3"},
		})
	}
	if r.GetFilter().GetLabelSelector()[podNamespaceLabel] == "kube-system" {
		for i, id := range []string{"e1", "e2", "e3", "e4"} {
			add(id, "etcd", int64(i+1))
		}
		add("gone", "kube-apiserver", 9)
		add("gone, of cri-dockerd", "kube-scheduler", 9)
	}
	if id := r.GetFilter().GetId(); strings.HasPrefix(id, "e") {
		add(id, "etcd", 1)
	}
	return answer, nil
}

func (p podCRI) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	s := &cri.ContainerStatus{
		State: cri.ContainerState_CONTAINER_EXITED, CreatedAt: 3, FinishedAt: 5, ExitCode: 137, Reason: "OOMKilled",
		Message: "m", LogPath: "/var/log/pods/x/0.log", Image: &cri.ImageSpec{Image: "etcd:1"},
	}
	switch id := r.GetContainerId(); {
	case id == "e4" && p.broken:
		return nil, status.Error(codes.Internal, "EIO")
	case id == "gone":
		return nil, status.Error(codes.NotFound, "no such container")
	case id == "gone, of cri-dockerd":
		return nil, status.Error(codes.Unknown, "no such container")
	case id == "e4":
		s = &cri.ContainerStatus{State: cri.ContainerState_CONTAINER_RUNNING, CreatedAt: 4}
	}
	return &cri.ContainerStatusResponse{Status: s}, nil
}

func (podCRI) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	return &cri.ListPodSandboxResponse{Items: []*cri.PodSandbox{{
		Id: "s1", State: cri.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: 7,
		Metadata: &cri.PodSandboxMetadata{Name: "etcd-cp-1", Namespace: "kube-system"},
	}}}, nil
}

func TestContainerStates(t *testing.T) {
	real := onlyRuntimes()
	t.Cleanup(real.Close)
	socket := serveCRI(t, podCRI{}, &fakeCRI{})
	got, err := real.ContainerStates(t.Context(), socket, "kube-system")
	want := []host.ContainerState{
		{ID: "e4", Name: "etcd", Pod: "etcd-cp-1", Namespace: "kube-system", State: "running", Restarts: 3, Created: time.Unix(0, 4)},
		{
			ID: "e3", Name: "etcd", Pod: "etcd-cp-1", Namespace: "kube-system", State: "exited", Restarts: 3, Created: time.Unix(0, 3),
			Image: "etcd:1", Finished: time.Unix(0, 5), ExitCode: 137, Reason: "OOMKilled", Message: "m", LogPath: "/var/log/pods/x/0.log",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, states (-want +got):\n%s", err, diff)
	}
	if got, err := real.ContainerStates(t.Context(), socket, "default"); err != nil || len(got) > 0 {
		t.Errorf("of another namespace: %+v, %v", got, err)
	}
	pods, err := real.Sandboxes(t.Context(), socket, "")
	if diff := cmp.Diff([]host.Sandbox{{ID: "s1", Pod: "etcd-cp-1", Namespace: "kube-system", Created: time.Unix(0, 7)}}, pods); diff != "" || err != nil {
		t.Errorf("%v, sandboxes (-want +got):\n%s", err, diff)
	}
}

// TestContainerStatesFail: a runtime that can't describe a container hasn't listed them all.
func TestContainerStatesFail(t *testing.T) {
	real := onlyRuntimes()
	t.Cleanup(real.Close)
	_, err := real.ContainerStates(t.Context(), serveCRI(t, podCRI{broken: true}, &fakeCRI{}), "kube-system")
	fact.Error(t, err, "EIO")
}

// crowdedCRI has so many Pods that their list exceeds gRPC's default size limit.
type crowdedCRI struct {
	cri.UnimplementedRuntimeServiceServer
}

func (crowdedCRI) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	answer := &cri.ListPodSandboxResponse{}
	long := map[string]string{"a": strings.Repeat("x", 1<<10)}
	for range 5 << 10 {
		answer.Items = append(answer.Items, &cri.PodSandbox{Annotations: long})
	}
	return answer, nil
}

func TestLongListOfSandboxes(t *testing.T) {
	real := onlyRuntimes()
	t.Cleanup(real.Close)
	list, err := real.Sandboxes(t.Context(), serveCRI(t, crowdedCRI{}, &fakeCRI{}), "")
	if err != nil || len(list) != 5<<10 {
		t.Errorf("%d sandboxes, %v", len(list), err)
	}
}
