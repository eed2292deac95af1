// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/test/fact"
)

// ListContainers has a running and an exited container, and filters by the kubelet's labels and by state.
func (f *fakeCRI) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	want := map[string]string{"io.kubernetes.container.name": "etcd", "io.kubernetes.pod.namespace": "kube-system"}
	for key, value := range r.GetFilter().GetLabelSelector() {
		if want[key] != value {
			return &cri.ListContainersResponse{}, nil
		}
	}
	if r.GetFilter().GetState() == nil || len(r.GetFilter().GetLabelSelector()) != 2 {
		return nil, status.Error(codes.InvalidArgument, "the filter is too wide")
	}
	id := "c1"
	if r.GetFilter().GetState().GetState() == cri.ContainerState_CONTAINER_EXITED {
		id = "c0"
	}
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: id, CreatedAt: time.Unix(7, 5).UnixNano()}}}, nil
}

func (f *fakeCRI) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	if f.removed = append(f.removed, r.GetContainerId()); len(f.removed) > 1 {
		return nil, status.Error(codes.Internal, "busy")
	}
	return &cri.RemoveContainerResponse{}, nil
}

func (f *fakeCRI) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	if r.GetContainerId() != "c1" || r.GetTimeout() != 30 {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &cri.StopContainerResponse{}, nil
}

func TestContainers(t *testing.T) {
	real := onlyRuntimes()
	t.Cleanup(real.Close)
	socket := (&fakeCRI{}).serve(t)
	list, err := real.Containers(t.Context(), socket, "kube-system", "etcd")
	if err != nil || len(list) != 1 || list[0].ID != "c1" || !list[0].Created.Equal(time.Unix(7, 5)) {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := real.Containers(t.Context(), socket, "default", "etcd"); err != nil || len(list) != 0 {
		t.Errorf("of another namespace: %+v %v", list, err)
	}
	if err := real.StopContainer(t.Context(), socket, "c1", 30*time.Second); err != nil {
		t.Error(err)
	}
	fact.Error(t, real.StopContainer(t.Context(), socket, "gone", 30*time.Second), "stop", "container gone")
}

func TestRemoveExited(t *testing.T) {
	real := onlyRuntimes()
	t.Cleanup(real.Close)
	f := &fakeCRI{}
	socket := f.serve(t)
	for _, namespace := range []string{"kube-system", "default"} {
		if err := real.RemoveExited(t.Context(), socket, namespace, "etcd"); err != nil {
			t.Errorf("%s: %v", namespace, err)
		}
	}
	if got := strings.Join(f.removed, " "); got != "c0" {
		t.Errorf("removed %q, want only the exited container", got)
	}
	fact.Error(t, real.RemoveExited(t.Context(), socket, "kube-system", "etcd"), "remove", "container c0")
}
