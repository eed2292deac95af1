// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// ContainerState is a container of a Pod, running or not.
type ContainerState struct {
	ID        string
	Name      string
	Pod       string
	Namespace string
	Image     string
	// State is created, running, exited or unknown.
	State string
	// Restarts counts the earlier containers of this Pod and name.
	Restarts int
	Created  time.Time
	// Finished, ExitCode, Reason and Message are set once it has exited.
	Finished time.Time
	ExitCode int32
	Reason   string // such as Error, OOMKilled
	Message  string
	// LogPath is the file with its output, in the CRI format.
	LogPath string
}

// Sandbox surrounds the containers of a Pod.
type Sandbox struct {
	ID        string
	Pod       string
	Namespace string
	// UID is the Pod's, from the kubelet that made it.
	UID     string
	Ready   bool
	Created time.Time
}

// Container is a running container.
type Container struct {
	ID      string
	Created time.Time
	// Image is the image as the Pod names it, such as registry.k8s.io/etcd:3.7.0-0; empty if the runtime doesn't say.
	Image string
}

// Image is an image in the runtime's store.
type Image struct {
	// ID is the digest of the image's configuration: sha256:….
	ID string
	// Names are its references with a tag, such as registry.k8s.io/pause:3.10.
	Names []string
	// Pinned images stay when the kubelet or `crictl rmi --prune` removes unused images.
	Pinned bool
}

// Pod is a Pod of the container runtime.
type Pod struct {
	ID, Namespace, Name string
	// HostNetwork reports whether it uses the host's network.
	HostNetwork bool
	// Orphan reports that only a container is left, without its Pod; ID is the container's.
	Orphan bool
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// RuntimeInfo describes the runtime, in its own words.
type RuntimeInfo struct {
	Name, Version, APIVersion string
	Ready                     bool   // the condition RuntimeReady
	Reason                    string // why it isn't ready
	CgroupDriver              string // systemd or cgroupfs; empty if the runtime doesn't say
	SandboxImage              string // the pause image; empty if the runtime doesn't say
	// CNIPluginDirs are where it looks for network plugins; empty if it doesn't say.
	CNIPluginDirs []string
}

// RuntimeService returns the unit that usually serves a runtime's socket.
func RuntimeService(socket string) string {
	switch path := strings.TrimPrefix(socket, "unix://"); {
	case strings.Contains(path, "crio"):
		return "crio.service"
	case strings.Contains(path, "cri-dockerd"):
		return "cri-docker.service"
	default:
		return strings.TrimSuffix(filepath.Base(path), ".sock") + ".service"
	}
}

// RuntimeError is a request the container runtime didn't fulfil.
type RuntimeError struct {
	Socket string // as the caller gave it
	Op     string // such as "pull image X"
	Reason string // the cause
	Fix    string // the remedy, empty if unknown
	Err    error
}

func (e *RuntimeError) Error() string {
	return fmt.Sprintf("%s: container runtime at %s: %s", e.Op, e.Socket, e.Reason)
}

func (e *RuntimeError) Unwrap() error { return e.Err }

// Remedy returns the fix, see package fault.
func (e *RuntimeError) Remedy() string { return e.Fix }
