// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/emptypb"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

// podRuntime has Pods by ID. failing counts how often a stop still fails.
type podRuntime struct {
	fakeCRI
	mu         sync.Mutex
	pods       map[string]cri.NamespaceMode
	containers map[string]string // the Pod of each
	failing    map[string]int
	stopped    []string
}

func (f *podRuntime) ListContainers(context.Context, *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list cri.ListContainersResponse
	for id, pod := range f.containers {
		list.Containers = append(list.Containers, &cri.Container{Id: id, PodSandboxId: pod, Labels: map[string]string{podNamespaceLabel: "default", podNameLabel: pod}})
	}
	return &list, nil
}

func (f *podRuntime) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, r.GetContainerId())
	return &cri.RemoveContainerResponse{}, nil
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
	real := newRuntimes(t)
	pods, err := real.Pods(t.Context(), socket)
	if err != nil || len(pods) != 4 {
		t.Fatal(pods, err)
	}
	removed, err := real.RemovePods(t.Context(), socket, append(pods, host.Pod{ID: "gone", Namespace: "default", Name: "gone"}))
	if err == nil || strings.Count(err.Error(), "the plugin says no") != 1 {
		t.Errorf("error: %v", err)
	}
	if len(removed) != 4 {
		t.Errorf("removed: %v", removed)
	}
	// Pods with their own network come first. A failed stop is retried once.
	if diff := cmp.Diff([]string{"dns", "proxy", "slow"}, f.stopped); diff != "" {
		t.Errorf("stopped (-want +got):\n%s", diff)
	}
	if left, err := real.Pods(t.Context(), socket); err != nil || len(left) != 1 || left[0].String() != "default/stuck" {
		t.Errorf("left: %v %v", left, err)
	}
}

// leaseService answers as containerd's own API does: with leases, which have an ID and a time.
type leaseService struct {
	*podRuntime
	making []string // IDs of Pods that aren't listed yet
	asked  int
	forget func() // ends the test's context when it has been asked often enough; nil for a service whose Pods come to an end
}

func (f *leaseService) list(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
	if namespace := metadata.ValueFromIncomingContext(ctx, "containerd-namespace"); !slices.Equal(namespace, []string{"k8s.io"}) {
		return nil, status.Errorf(codes.FailedPrecondition, "namespace %q", namespace)
	}
	if err := decode(&emptypb.Empty{}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	switch {
	case f.forget != nil && f.asked == 9:
		f.forget()
	case f.forget != nil:
	case f.asked == 3 && len(f.making) > 0: // the first becomes a Pod
		f.pods[f.making[0]] = cri.NamespaceMode_POD
	case f.asked == 5: // the others were taken back
		f.making = nil
	}
	ids := append([]string{"563885166-LT"}, f.making...) // another client's temporary lease
	for id := range f.pods {
		ids = append(ids, id)
	}
	return leaseList(ids), nil
}

// leaseList is a leases.ListResponse: https://github.com/containerd/containerd/blob/api/v1.10.0/api/services/leases/v1/leases.proto
func leaseList(ids []string) *emptypb.Empty {
	field := func(number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
	}
	var all []byte
	for _, id := range ids {
		created := field(2, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1795473877))
		all = append(all, field(1, append(field(1, []byte(id)), created...))...)
	}
	var answer emptypb.Empty
	answer.ProtoReflect().SetUnknown(all)
	return &answer
}

func (f *leaseService) serve(t *testing.T) (socket string) {
	t.Helper()
	return serveCRI(t, f, &f.fakeCRI, &grpc.ServiceDesc{ServiceName: "containerd.services.leases.v1.Leases", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "List", Handler: f.list}}})
}

// TestAwaitSettled: containerd's leases say what it's making. Another runtime only gets some time.
func TestAwaitSettled(t *testing.T) {
	listed := map[string]cri.NamespaceMode{strings.Repeat("a", 64): cri.NamespaceMode_POD}
	making := []string{strings.Repeat("b", 64), strings.Repeat("c", 64)}
	for name, tt := range map[string]struct {
		leases  *leaseService // nil for another runtime
		ended   time.Duration // ago
		forever bool
		asked   int           // 0 for any number
		takes   time.Duration // at least: how much longer depends on the machine
		err     string
	}{
		"making Pods":                   {leases: &leaseService{making: making}, ended: time.Hour, asked: 5, takes: 4 * settleInterval},
		"making them for ever":          {leases: &leaseService{making: making}, ended: time.Hour, forever: true, err: "[bbbbbbbbbbbb cccccccccccc]"},
		"idle":                          {leases: &leaseService{}, ended: time.Hour, asked: 1},
		"idle, the kubelet just ended":  {leases: &leaseService{}, takes: containerSettlePeriod},
		"other":                         {ended: time.Hour},
		"other, the kubelet just ended": {takes: settlePeriod},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f := &podRuntime{pods: maps.Clone(listed)}
			socket := ""
			if tt.leases != nil {
				tt.leases.podRuntime = f
				if tt.forever {
					tt.leases.forget = cancel
				}
				socket = tt.leases.serve(t)
			} else {
				socket = serveCRI(t, f, &f.fakeCRI)
			}
			began := time.Now()
			err := newRuntimes(t).AwaitSettled(ctx, socket, began.Add(-tt.ended))
			if took := time.Since(began); took < tt.takes {
				t.Errorf("it took %s, want at least %s", took, tt.takes)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
			if tt.asked != 0 && tt.leases.asked != tt.asked {
				t.Errorf("asked for the leases %d times, want %d", tt.leases.asked, tt.asked)
			}
		})
	}
}

// TestOrphans: a container created while the runtime removed its Pod is removed by itself.
func TestOrphans(t *testing.T) {
	f := &podRuntime{pods: map[string]cri.NamespaceMode{"dns": cri.NamespaceMode_POD}, containers: map[string]string{"late": "gone", "server": "dns"}}
	socket := serveCRI(t, f, &f.fakeCRI)
	real := newRuntimes(t)
	pods, err := real.Pods(t.Context(), socket)
	want := []host.Pod{{ID: "dns", Namespace: "default", Name: "dns"}, {ID: "late", Namespace: "default", Name: "gone", Orphan: true}}
	if diff := cmp.Diff(want, pods); diff != "" || err != nil {
		t.Fatalf("%v (-want +got):\n%s", err, diff)
	}
	if removed, err := real.RemovePods(t.Context(), socket, pods); err != nil || len(removed) != 2 {
		t.Errorf("removed %v, %v", removed, err)
	}
	if diff := cmp.Diff(map[string]string{"server": "dns"}, f.containers); diff != "" {
		t.Errorf("containers left (-want +got):\n%s", diff)
	}
}

func TestPodsOfNoRuntime(t *testing.T) {
	real := newRuntimes(t)
	socket := "unix://" + t.TempDir() + "/none.sock"
	_, err := real.Pods(t.Context(), socket)
	fact.Error(t, err, "list", "Pods", socket)
}
