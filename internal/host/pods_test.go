// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podRuntime has Pods by ID. failing counts how often a stop still fails.
type podRuntime struct {
	fakeCRI
	mu      sync.Mutex
	pods    map[string]cri.NamespaceMode
	failing map[string]int
	stopped []string
}

func (f *podRuntime) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list cri.ListPodSandboxResponse
	for id := range f.pods {
		list.Items = append(list.Items, &cri.PodSandbox{Id: id, Metadata: &cri.PodSandboxMetadata{Name: id, Namespace: "default"}})
	}
	return &list, nil
}

func (f *podRuntime) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{Linux: &cri.LinuxPodSandboxStatus{
		Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{Network: f.pods[r.GetPodSandboxId()]}},
	}}}, nil
}

func (f *podRuntime) StopPodSandbox(_ context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := r.GetPodSandboxId()
	if _, there := f.pods[id]; !there {
		return nil, status.Error(codes.NotFound, "no such Pod")
	}
	if f.failing[id] > 0 {
		f.failing[id]--
		return nil, status.Error(codes.Unknown, "the plugin says no")
	}
	f.stopped = append(f.stopped, id)
	return &cri.StopPodSandboxResponse{}, nil
}

func (f *podRuntime) RemovePodSandbox(_ context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, r.GetPodSandboxId())
	return &cri.RemovePodSandboxResponse{}, nil
}

func TestRemovePods(t *testing.T) {
	f := &podRuntime{
		pods: map[string]cri.NamespaceMode{
			"proxy": cri.NamespaceMode_NODE, "dns": cri.NamespaceMode_POD, "slow": cri.NamespaceMode_POD, "stuck": cri.NamespaceMode_POD,
		},
		failing: map[string]int{"slow": 1, "stuck": 9},
	}
	socket := serveCRI(t, f, &f.fakeCRI)
	real := newReal(t)
	pods, err := real.Pods(t.Context(), socket)
	if err != nil || len(pods) != 4 {
		t.Fatal(pods, err)
	}
	removed, err := real.RemovePods(t.Context(), socket, append(pods, Pod{ID: "gone", Namespace: "default", Name: "gone"}))
	if err == nil || strings.Count(err.Error(), "the plugin says no") != 1 {
		t.Errorf("error: %v", err)
	}
	if len(removed) != 4 {
		t.Errorf("removed: %v", removed)
	}
	// Pods with their own network come first. A stop that failed is retried once.
	if diff := cmp.Diff([]string{"dns", "proxy", "slow"}, f.stopped); diff != "" {
		t.Errorf("stopped (-want +got):\n%s", diff)
	}
	if left, err := real.Pods(t.Context(), socket); err != nil || len(left) != 1 || left[0].String() != "default/stuck" {
		t.Errorf("left: %v %v", left, err)
	}
}

func TestPodsOfNoRuntime(t *testing.T) {
	real := newReal(t)
	_, err := real.Pods(t.Context(), "unix://"+t.TempDir()+"/none.sock")
	if err == nil || !strings.Contains(err.Error(), "list the Pods: container runtime at unix://") {
		t.Errorf("error: %v", err)
	}
}
