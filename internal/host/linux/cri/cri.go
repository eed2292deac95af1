// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package cri talks to the container runtime of the real host over its Unix socket. Runtimes has a connection for each socket;
// it implements host.RuntimeReader and host.RuntimeWriter.
package cri

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/files"
)

const (
	// criConnect bounds connecting, criAnswer each call that needs no network. A runtime answers in milliseconds, unless it's just
	// starting or unpacks images on a slow host. Without a runtime, there's an error at once.
	criConnect = 20 * time.Second
	criAnswer  = time.Minute
	// criMessage is the largest response in bytes, as for the kubelet. gRPC's own limit of 4 MiB is too small to list a busy
	// node's containers.
	criMessage = 16 << 20
)

// Runtimes holds a connection for each container runtime's socket, and implements host.RuntimeReader and RuntimeWriter with the
// generated stubs of cri-api. docs/design/written-by-hand.md says why not cri-client.
type Runtimes struct {
	// Notes are the files below which host.FetchNotes is.
	Notes *files.Root

	noting sync.Mutex // held while a note is added or removed, with its directory
	mu     sync.Mutex
	conns  map[string]*grpc.ClientConn
}

func (r *Runtimes) get(socket string) (*grpc.ClientConn, error) {
	path := socketPath(socket)
	if !strings.HasPrefix(path, "/") {
		return nil, errors.Errorf("invalid container runtime socket %q (expected a path such as unix:///run/containerd/containerd.sock)", socket)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if conn := r.conns[path]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient("unix://"+path,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(criMessage)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, MaxDelay: time.Second},
			MinConnectTimeout: criConnect,
		}))
	if err != nil {
		return nil, errors.Wrapf(err, "container runtime socket %q", socket)
	}
	if r.conns == nil {
		r.conns = map[string]*grpc.ClientConn{}
	}
	r.conns[path] = conn
	return conn, nil
}

// Close ends the connections.
func (r *Runtimes) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for path, conn := range r.conns {
		_ = conn.Close() // it only fails if it's closed already
		delete(r.conns, path)
	}
}

// socketPath removes an endpoint's scheme, if any.
func socketPath(socket string) string { return strings.TrimPrefix(socket, "unix://") }

// client has both services of a runtime, and the connection to it.
type client struct {
	conn *grpc.ClientConn
	cri.RuntimeServiceClient
	cri.ImageServiceClient
}

// ask calls do with the deadline for an answer that needs no network. Errors name the request op.
func (r *Runtimes) ask(ctx context.Context, socket, op string, do func(context.Context, client) error) error {
	ctx, cancel := context.WithTimeout(ctx, criAnswer)
	defer cancel()
	return r.order(socket, op, func(c client) error { return do(ctx, c) })
}

// order is ask without a deadline.
func (r *Runtimes) order(socket, op string, do func(client) error) error {
	conn, err := r.get(socket)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(client{conn, cri.NewRuntimeServiceClient(conn), cri.NewImageServiceClient(conn)}); err != nil {
		return criFailure(socket, op, time.Since(began), err)
	}
	return nil
}

func (r *Runtimes) RuntimeInfo(ctx context.Context, socket string) (info host.RuntimeInfo, err error) {
	err = r.ask(ctx, socket, "ask for the runtime's version and status", func(ctx context.Context, c client) error {
		version, err := c.Version(ctx, &cri.VersionRequest{})
		if err != nil {
			return err
		}
		answer, err := c.Status(ctx, &cri.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		var own runtimeConfig
		_ = json.Unmarshal([]byte(answer.GetInfo()["config"]), &own) // CRI doesn't specify this text
		info = host.RuntimeInfo{
			Name:          version.GetRuntimeName(),
			Version:       version.GetRuntimeVersion(),
			APIVersion:    version.GetRuntimeApiVersion(),
			SandboxImage:  own.SandboxImage,
			CNIPluginDirs: own.CNI.dirs(),
		}
		info.Ready, info.Reason = runtimeReady(answer.GetStatus())
		info.CgroupDriver, err = cgroupDriver(ctx, c, own)
		return err
	})
	return info, err
}

func runtimeReady(s *cri.RuntimeStatus) (ready bool, reason string) {
	for _, c := range s.GetConditions() {
		if c.GetType() != cri.RuntimeReady {
			continue
		}
		return c.GetStatus(), strings.Trim(c.GetReason()+": "+c.GetMessage(), ": ")
	}
	return false, "the runtime does not report the condition RuntimeReady"
}

// cgroupDriver asks the runtime. containerd before 2.0 doesn't implement the call, but its configuration has the answer.
func cgroupDriver(ctx context.Context, client cri.RuntimeServiceClient, own runtimeConfig) (string, error) {
	answer, err := client.RuntimeConfig(ctx, &cri.RuntimeConfigRequest{})
	if status.Code(err) == codes.Unimplemented {
		return own.cgroupDriver(), nil
	}
	if err != nil {
		return "", err
	}
	if answer.GetLinux() == nil {
		return "", nil
	}
	return strings.ToLower(answer.GetLinux().GetCgroupDriver().String()), nil
}

// runtimeConfig is the part Slipway reads of the configuration that containerd and CRI-O add to a verbose status.
type runtimeConfig struct {
	SandboxImage string    `json:"sandboxImage"`
	CNI          cniConfig `json:"cni"`
	Containerd   struct {
		Default  string `json:"defaultRuntimeName"`
		Runtimes map[string]struct {
			Options struct {
				SystemdCgroup *bool `json:"SystemdCgroup"`
			} `json:"options"`
		} `json:"runtimes"`
	} `json:"containerd"`
}

// cniConfig has one directory in containerd before 2.1, and a list since.
type cniConfig struct {
	BinDir  string   `json:"binDir"`
	BinDirs []string `json:"binDirs"`
}

func (c cniConfig) dirs() []string {
	if c.BinDir == "" {
		return c.BinDirs
	}
	return append([]string{c.BinDir}, c.BinDirs...)
}

func (c runtimeConfig) cgroupDriver() string {
	systemd := c.Containerd.Runtimes[c.Containerd.Default].Options.SystemdCgroup
	switch {
	case systemd == nil:
		return ""
	case *systemd:
		return "systemd"
	default:
		return "cgroupfs"
	}
}
