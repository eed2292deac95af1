// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package cri

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// memory is a directory that takes no time to sync.
const memory = "/dev/shm"

// fakeCRI speaks the real protocol on a real socket.
type fakeCRI struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	status  *cri.StatusResponse
	config  *cri.RuntimeConfigResponse // nil: the runtime doesn't support the call
	answer  error                      // of Version and the image service
	removed []string                   // containers
	hanging bool
	dir     string // of images; empty: the runtime doesn't support the call

	mu    sync.Mutex
	conns int
}

func (f *fakeCRI) wait(ctx context.Context) error {
	if f.hanging {
		<-ctx.Done()
		return ctx.Err()
	}
	return f.answer
}

func (f *fakeCRI) Version(ctx context.Context, _ *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "containerd", RuntimeVersion: "v1.7.1", RuntimeApiVersion: "v1"}, f.wait(ctx)
}

func (f *fakeCRI) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !r.Verbose {
		return nil, status.Error(codes.Internal, "not verbose")
	}
	return f.status, nil
}

func (f *fakeCRI) RuntimeConfig(ctx context.Context, r *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	if f.config == nil {
		return f.UnimplementedRuntimeServiceServer.RuntimeConfig(ctx, r)
	}
	return f.config, nil
}

func (f *fakeCRI) ImageStatus(ctx context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	if r.GetImage().GetImage() == "registry.k8s.io/pause:3.10.2" {
		return &cri.ImageStatusResponse{Image: &cri.Image{Id: "sha256:1"}}, f.wait(ctx)
	}
	return &cri.ImageStatusResponse{}, f.wait(ctx)
}

func (f *fakeCRI) ImageFsInfo(ctx context.Context, r *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	if f.dir == "" {
		return f.UnimplementedImageServiceServer.ImageFsInfo(ctx, r)
	}
	id := &cri.FilesystemIdentifier{Mountpoint: f.dir}
	return &cri.ImageFsInfoResponse{ImageFilesystems: []*cri.FilesystemUsage{{FsId: id}}}, nil
}

func (f *fakeCRI) PullImage(ctx context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	return &cri.PullImageResponse{ImageRef: r.GetImage().GetImage()}, f.wait(ctx)
}

// Accept counts connections.
type counting struct {
	net.Listener
	f *fakeCRI
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.f.mu.Lock()
		c.f.conns++
		c.f.mu.Unlock()
	}
	return conn, err
}

func listenUnix(t *testing.T) (net.Listener, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, path
}

func (f *fakeCRI) serve(t *testing.T) (socket string) {
	t.Helper()
	return serveCRI(t, f, f)
}

// serveCRI serves a runtime, perhaps with APIs of its own, and counts its connections in f.
func serveCRI(t *testing.T, runtime cri.RuntimeServiceServer, f *fakeCRI, more ...*grpc.ServiceDesc) (socket string) {
	t.Helper()
	l, path := listenUnix(t)
	s := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(s, runtime)
	cri.RegisterImageServiceServer(s, f)
	for _, service := range more {
		s.RegisterService(service, nil)
	}
	go func() { _ = s.Serve(counting{l, f}) }() // ends with s.Stop
	t.Cleanup(s.Stop)
	return path
}

func ready() []*cri.RuntimeCondition {
	return []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Reason: "NoCNI"}}
}

func TestRuntimeInfo(t *testing.T) {
	base := host.RuntimeInfo{Name: "containerd", Version: "v1.7.1", APIVersion: "v1", Ready: true}
	with := func(change func(*host.RuntimeInfo)) host.RuntimeInfo {
		info := base
		change(&info)
		return info
	}
	tests := map[string]struct {
		status *cri.StatusResponse
		config *cri.RuntimeConfigResponse
		want   host.RuntimeInfo
	}{
		"says all": {
			&cri.StatusResponse{
				Status: &cri.RuntimeStatus{Conditions: ready()},
				Info:   map[string]string{"config": `{"sandboxImage":"registry.k8s.io/pause:3.10.2"}`},
			},
			&cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_SYSTEMD}},
			with(func(i *host.RuntimeInfo) {
				i.CgroupDriver, i.SandboxImage = "systemd", "registry.k8s.io/pause:3.10.2"
			}),
		},
		"cgroupfs": {
			&cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: ready()}},
			&cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}},
			with(func(i *host.RuntimeInfo) { i.CgroupDriver = "cgroupfs" }),
		},
		"old containerd with systemd": {
			&cri.StatusResponse{
				Status: &cri.RuntimeStatus{Conditions: ready()},
				Info:   map[string]string{"config": `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":true}}}}}`},
			}, nil,
			with(func(i *host.RuntimeInfo) { i.CgroupDriver = "systemd" }),
		},
		"old containerd without": {
			&cri.StatusResponse{
				Status: &cri.RuntimeStatus{Conditions: ready()},
				Info:   map[string]string{"config": `{"containerd":{"defaultRuntimeName":"runc","runtimes":{"runc":{"options":{"SystemdCgroup":false}}}}}`},
			}, nil,
			with(func(i *host.RuntimeInfo) { i.CgroupDriver = "cgroupfs" }),
		},
		"says little": {
			&cri.StatusResponse{
				Status: &cri.RuntimeStatus{Conditions: ready()},
				Info:   map[string]string{"config": `{"containerd":[]`},
			}, nil, base,
		},
		"says no driver": {
			&cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: ready()}},
			&cri.RuntimeConfigResponse{}, base,
		},
		"not ready": {
			&cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
				{Type: cri.RuntimeReady, Reason: "Shim", Message: "cannot find runc"},
			}}}, nil,
			with(func(i *host.RuntimeInfo) { i.Ready, i.Reason = false, "Shim: cannot find runc" }),
		},
		"no status": {
			&cri.StatusResponse{}, nil,
			with(func(i *host.RuntimeInfo) {
				i.Ready, i.Reason = false, cri.RuntimeReady
			}),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := &fakeCRI{status: test.status, config: test.config}
			got, err := newRuntimes(t).RuntimeInfo(t.Context(), "unix://"+f.serve(t))
			if err != nil {
				t.Fatal(err)
			}
			if test.want.Reason == cri.RuntimeReady { // it names the missing condition
				fact.In(t, got.Reason, cri.RuntimeReady)
				got.Reason = cri.RuntimeReady
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImages(t *testing.T) {
	f := &fakeCRI{}
	path := f.serve(t)
	r := newRuntimes(t)
	for socket, image := range map[string]string{path: "registry.k8s.io/pause:3.10.2", "unix://" + path: "registry.k8s.io/etcd:1"} {
		present, err := r.ImagePresent(t.Context(), socket, image)
		if err != nil || present != strings.Contains(image, "pause") {
			t.Errorf("%s: present %v, error %v", image, present, err)
		}
	}
	var pulls sync.WaitGroup
	for range 4 {
		pulls.Go(func() {
			if err := r.PullImage(t.Context(), path, "x"); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	if f.conns != 1 {
		t.Errorf("%d connections", f.conns)
	}
}

func TestRuntimeAnswersWrong(t *testing.T) {
	tests := map[string]struct {
		answer error
		want   []string
	}{
		"no CRI v1": {
			status.Error(codes.Unimplemented, "unknown service runtime.v1.RuntimeService"),
			[]string{"CRI v1", "runtime.v1.RuntimeService", "disabled_plugins", "/etc/containerd/config.toml", "`systemctl restart containerd`"},
		},
		"failure":    {status.Error(codes.Unknown, `failed to resolve reference "x": not found`), []string{`reference "x": not found`}},
		"no gRPC":    {errors.New("boom"), []string{"boom"}},
		"in no time": {context.DeadlineExceeded, []string{"`systemctl status s.service`"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			f := &fakeCRI{answer: test.answer, dir: memory}
			socket := f.serve(t)
			r := newRuntimes(t)
			_, infoErr := r.RuntimeInfo(t.Context(), socket)
			_, imageErr := r.ImagePresent(t.Context(), socket, "x")
			pullErr := r.PullImage(t.Context(), socket, "x")
			for op, err := range map[string]error{"version": infoErr, "look": imageErr, "pull": pullErr} {
				var typed *host.RuntimeError
				if !errors.As(err, &typed) || typed.Socket != socket || (op != "version") != strings.Contains(typed.Op, "image x") ||
					!strings.HasPrefix(err.Error(), typed.Op+": ") {
					t.Fatalf("error %v", err)
				}
				fact.In(t, typed.Op, op)
				fact.In(t, fixture.Told(err), append(test.want, socket)...)
			}
		})
	}
}

func TestRuntimeHangs(t *testing.T) {
	f := &fakeCRI{hanging: true, dir: memory}
	socket := f.serve(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := newRuntimes(t)
	for _, err := range []error{
		func() error { _, err := r.RuntimeInfo(ctx, socket); return err }(),
		r.PullImage(ctx, socket, "x"),
	} {
		var typed *host.RuntimeError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &typed) || typed.Socket != socket {
			t.Errorf("error %v", err)
		}
	}
}

func TestRuntimeUnreachable(t *testing.T) {
	refused, refusedPath := listenUnix(t)
	refused.(*net.UnixListener).SetUnlinkOnClose(false)
	refused.Close()

	http, httpPath := listenUnix(t)
	go func() {
		for {
			conn, err := http.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			conn.Close()
		}
	}()

	file := filepath.Join(t.TempDir(), "crio.sock")
	fixture.PutMode(t, file, "", 0o600)

	for socket, want := range map[string][]string{
		"/none/s":             {"/none/s", "not exist", "`slipway host prepare --bundle FILE`", "criSocket", "--cri-socket"},
		refusedPath:           {refusedPath, "nothing listens", "`systemctl start s.service`"},
		httpPath:              {httpPath, "CRI", "criSocket", "--cri-socket"},
		file:                  {file, "nothing listens", "`systemctl start crio.service`"},
		"tcp://10.0.0.1:1234": {"unix:///run/containerd/containerd.sock"},
		"":                    {"unix:///run/containerd/containerd.sock"},
	} {
		_, err := newRuntimes(t).RuntimeInfo(t.Context(), socket)
		if err == nil {
			t.Errorf("%s: no error", socket)
			continue
		}
		fact.In(t, fixture.Told(err), want...)
	}
}

// Slipway finds a runtime that starts while it runs.
func TestRuntimeComesLater(t *testing.T) {
	f := &fakeCRI{dir: memory}
	path := f.serve(t)
	later := filepath.Join(t.TempDir(), "later")
	r := newRuntimes(t)
	if err := r.PullImage(t.Context(), later, "x"); err == nil {
		t.Fatal("pulled from nowhere")
	}
	if err := os.Link(path, later); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(3 * time.Second)
	for {
		err := r.PullImage(t.Context(), later, "x")
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
