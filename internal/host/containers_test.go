// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ListContainers has one container, if it is asked for in the kubelet's
// labels and for running ones only.
func (f *fakeCRI) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	want := map[string]string{"io.kubernetes.container.name": "etcd", "io.kubernetes.pod.namespace": "kube-system"}
	for key, value := range r.GetFilter().GetLabelSelector() {
		if want[key] != value {
			return &cri.ListContainersResponse{}, nil
		}
	}
	if r.GetFilter().GetState().GetState() != cri.ContainerState_CONTAINER_RUNNING || len(r.GetFilter().GetLabelSelector()) != 2 {
		return nil, status.Error(codes.InvalidArgument, "the filter is too wide")
	}
	return &cri.ListContainersResponse{Containers: []*cri.Container{{Id: "c1", CreatedAt: time.Unix(7, 5).UnixNano()}}}, nil
}

func (f *fakeCRI) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	if r.GetContainerId() != "c1" || r.GetTimeout() != 30 {
		return nil, status.Error(codes.NotFound, "no such container")
	}
	return &cri.StopContainerResponse{}, nil
}

func TestContainers(t *testing.T) {
	real := New()
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
	err = real.StopContainer(t.Context(), socket, "gone", 30*time.Second)
	if err == nil || !strings.Contains(err.Error(), "stop container gone") {
		t.Errorf("one that is gone: %v", err)
	}
}
