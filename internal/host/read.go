// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io/fs"
	"net/netip"
	"os"
	"time"
)

// FileReader reads files. Every path is absolute.
type FileReader interface {
	// ReadFile returns the whole file, or fs.ErrNotExist.
	ReadFile(path string) ([]byte, error)
	// Open opens a file for reading, or returns fs.ErrNotExist. A plan returns ErrNotInPlan for a file it would write.
	Open(path string) (*os.File, error)
	// HasFile reports whether a file exists with this content and mode. Anything but a regular file in its place is a *KindError.
	HasFile(f SetFile) (bool, error)
	// ReadDir lists a directory, sorted by name, or returns fs.ErrNotExist.
	ReadDir(path string) ([]fs.DirEntry, error)
	// Lstat describes path itself, without following a symlink.
	Lstat(path string) (fs.FileInfo, error)
	// Stat describes the target of path.
	Stat(path string) (fs.FileInfo, error)
	// AwaitFile waits until another program has written path and accept returns nil for its content. A nil accept takes any
	// content.
	AwaitFile(ctx context.Context, path string, accept func(data []byte) error) error
}

// PathReader looks beyond a path's content: its mounts, its file system's space, and who made it.
type PathReader interface {
	Space(path string) (Space, error)
	// Mounts lists the mount points below a directory, the deepest first. It follows symlinks on the way to the directory, but
	// the paths it returns begin with dir as given. A missing directory has none.
	Mounts(dir string) ([]string, error)
	// SurvivesRemoval reports whether RemoveTree will empty a directory but keep it: a mount point, a symlink to another
	// directory, or a directory that existed before EnsureDir narrowed its mode; RemoveTree then gives it that mode back. It's also
	// true on a read-only file system, where nothing can be removed. It returns an error where RemoveTree will refuse a symlink.
	SurvivesRemoval(path string) (bool, error)
	// CreatedBySlipway reports whether Slipway created a file or directory; false where the file system can't keep that note (an
	// extended attribute).
	CreatedBySlipway(path string) bool
	// Unchanged reports whether Slipway created a file and nobody has edited it since; false where that isn't known.
	Unchanged(path string) bool
}

// UnitReader asks systemd. On a host without it, the error is ErrNoSystemd.
type UnitReader interface {
	// Unit returns a unit's state. For a missing unit, LoadState is "not-found", without an error.
	Unit(ctx context.Context, name string) (UnitState, error)
	// Journal returns the last entries of a unit's journal since a time (zero for all), the oldest first.
	Journal(ctx context.Context, unit string, since time.Time, last int) ([]JournalEntry, error)
}

// RuntimeReader asks the container runtime over CRI, at a Unix socket such as unix:///run/containerd/containerd.sock. Nothing
// leaves the host.
type RuntimeReader interface {
	RuntimeInfo(ctx context.Context, socket string) (RuntimeInfo, error)
	// AwaitRuntime waits until the runtime answers and is ready. The error after the deadline has the last observed state.
	AwaitRuntime(ctx context.Context, socket string) error
	ImagePresent(ctx context.Context, socket, image string) (bool, error)
	// Images lists the images in the runtime's store.
	Images(ctx context.Context, socket string) ([]Image, error)
	// ImageDir is where the runtime keeps images; empty if it doesn't say.
	ImageDir(ctx context.Context, socket string) (string, error)
	// Containers lists the running containers of a name in a namespace's Pods, by the kubelet's labels.
	Containers(ctx context.Context, socket, namespace, name string) ([]Container, error)
	// AwaitContainer waits for a running container of a name, in a namespace's Pods, for which accept returns true. The error
	// after the deadline has the last observed state.
	AwaitContainer(ctx context.Context, socket, namespace, name string, accept func(Container) bool) error
	// ContainerStates lists the containers of a namespace's Pods, or of all Pods if namespace is empty: the newest two of each
	// name in a Pod, exited or not, the newest first.
	ContainerStates(ctx context.Context, socket, namespace string) ([]ContainerState, error)
	// Sandboxes lists a namespace's sandboxes, or all if namespace is empty.
	Sandboxes(ctx context.Context, socket, namespace string) ([]Sandbox, error)
	// Pods lists the Pods the runtime knows, running or not, and containers whose Pod is gone.
	Pods(ctx context.Context, socket string) ([]Pod, error)
	// AwaitSettled waits until Pods lists everything the kubelet asked the runtime for before since, when the kubelet ended. The
	// error after the deadline says why the runtime may still be busy.
	AwaitSettled(ctx context.Context, socket string, since time.Time) error
}

// SystemReader returns facts about the machine, its programs and this process.
type SystemReader interface {
	Hostname() (string, error)
	// EffectiveUID is this process's user ID; 0 is root.
	EffectiveUID() int
	NumCPU() int
	// MemoryBytes is the size of the physical memory.
	MemoryBytes() (uint64, error)
	// Swap lists the active swap areas.
	Swap() ([]string, error)
	// SELinux reports whether the kernel runs with SELinux.
	SELinux() bool
	// KernelRelease is uname -r.
	KernelRelease() (string, error)
	// LookPath finds an executable in PATH.
	LookPath(name string) (string, error)
	// ProgramVersion runs `path --version` and returns its output, trimmed.
	ProgramVersion(ctx context.Context, path string) (string, error)
	// ProxyFor returns the environment's proxy for a URL, without its password; empty for none.
	ProxyFor(url string) (string, error)
	// Environ is this process's environment, NAME=VALUE.
	Environ() []string
	// Now is the host's clock.
	Now() time.Time
	// CPUTime is the processor time that this process and the programs it has run have used.
	CPUTime() time.Duration
}

// NetworkReader reads the kernel's network configuration. It sends nothing.
type NetworkReader interface {
	// Interfaces lists the network interfaces that are up, without loopback.
	Interfaces() ([]Interface, error)
	// Addresses lists the addresses of all interfaces.
	Addresses() ([]netip.Addr, error)
	// DefaultAddress is the address of the interface with an IP family's default route; the zero Addr if there's no such route.
	DefaultAddress(ipv6 bool) (netip.Addr, error)
	// Routes lists the main routing table's destinations, without the default routes.
	Routes() ([]Route, error)
	// PortFree tries to listen on a TCP port of an address; empty means all of them. If another process listens there, the error
	// names it, if it's visible.
	PortFree(address string, port int) error
	// PortHolder returns the process listening on a TCP port of this host; found is false if there's none, or this user may not
	// see it.
	PortHolder(port int) (p Process, found bool)
	// NetworkLeftovers lists the kernel's leftovers of kube-proxy, the kubelet and a network plugin with this bridge.
	NetworkLeftovers(ctx context.Context, bridge string) ([]Leftover, error)
}
