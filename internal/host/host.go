// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package host is what a phase may do to this host: files, systemd units, the
// container runtime, and the facts that checks ask for.
//
// Real works on the host. Overlay (plan.go) wraps any Host for a dry run: it
// answers reads from what the run has written so far, then from the host, and
// records each action in order.
package host

import (
	"context"
	"io/fs"
	"net/netip"
	"time"
)

// Host is everything that a phase may ask of or do to the node it runs on.
type Host interface {
	Files
	Owners
	Units
	Runtime
	Facts
	Cleanup
	Disks
	Network
}

// Files reads and changes files. Every path is absolute.
type Files interface {
	// ReadFile returns the whole file. A missing one is fs.ErrNotExist.
	ReadFile(path string) ([]byte, error)
	// Lstat describes path itself, without following a symlink.
	Lstat(path string) (fs.FileInfo, error)
	// Stat describes what path leads to.
	Stat(path string) (fs.FileInfo, error)
	// ReadTail returns the end of a file, at most that many bytes of it.
	ReadTail(path string, most int64) ([]byte, error)
	// ReadHead returns the beginning of a file, at most that many bytes of it.
	ReadHead(path string, most int64) ([]byte, error)
	// ReadDir lists a folder, sorted by name. A missing one is fs.ErrNotExist.
	ReadDir(path string) ([]fs.DirEntry, error)

	// WriteFile makes path hold data with mode. It leaves a file alone that
	// already has both, and tells whether it changed anything. The change is
	// atomic and durable: a new inode that never had a wider mode, fsync,
	// rename, fsync of the folder. A path that is a symlink or not a regular
	// file is an error. Its folder may be a symlink to one: people move
	// /var/lib/kubelet to a bigger disk like that.
	WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error)
	// WriteSecret is WriteFile with mode 0600, for what a plan must not show:
	// private keys and kubeconfigs that hold one. A key that others have to
	// read, because a component runs as a user of its own, goes through
	// WriteFile with a wider mode; a plan knows it by its content.
	WriteSecret(path string, data []byte) (changed bool, err error)
	// EnsureDir makes path a folder with mode, its parents 0755. A folder
	// that exists keeps its mode unless it is wider than mode; one with the
	// sticky bit, such as /tmp, is shared on purpose and keeps it always. A
	// symlink to a folder counts as that folder; what is or leads to anything
	// else is an error.
	EnsureDir(path string, mode fs.FileMode) error
	// Remove deletes one file or empty folder; a missing one is no error.
	Remove(path string) error
	// AwaitFile waits until path, which another program writes, is there, and
	// fits says nothing against what it holds; nil takes whatever that is.
	AwaitFile(ctx context.Context, path string, fits func(data []byte) error) error
}

// Units asks systemd. Each method returns once the job has ended. Errors are
// *UnitError, or say that the bus cannot be reached, or are ErrNoSystemd.
type Units interface {
	// Unit returns what systemd knows of a unit. A unit that does not exist
	// has LoadState "not-found" and is no error.
	Unit(ctx context.Context, name string) (UnitState, error)
	// Journal returns what systemd's journal holds of a unit since a time, the
	// zero time for all of it: the last entries of it, the oldest first.
	Journal(ctx context.Context, unit string, since time.Time, last int) ([]JournalEntry, error)
	ReloadUnits(ctx context.Context) error
	EnableUnit(ctx context.Context, name string) error
	StartUnit(ctx context.Context, name string) error
	StopUnit(ctx context.Context, name string) error
	RestartUnit(ctx context.Context, name string) error
}

// UnitState is a unit as systemd reports it, in systemd's own words.
type UnitState struct {
	LoadState     string // loaded, not-found, masked, ...
	ActiveState   string // active, activating, failed, inactive, ...
	SubState      string // running, auto-restart, dead, ...
	UnitFileState string // enabled, disabled, masked, ... ; empty if not loaded
	Result        string // success, exit-code, ...
	Restarts      uint32 // automatic restarts so far
	MainPID       uint32
	ActiveSince   time.Time // zero if never
	// Current tells that systemd knows the unit's files as they are now, so
	// that reading all units again would change nothing for this one.
	Current bool
}

// Runtime asks the container runtime over CRI, at a socket such as
// unix:///run/containerd/containerd.sock.
type Runtime interface {
	RuntimeInfo(ctx context.Context, socket string) (RuntimeInfo, error)
	ImagePresent(ctx context.Context, socket, image string) (bool, error)
	// PullImage asks the runtime to pull; it is the only thing here that may
	// use the network, and it is the runtime that does.
	PullImage(ctx context.Context, socket, image string) error
	// Containers lists the running containers of a name in Pods of a
	// namespace, as the kubelet labels them.
	Containers(ctx context.Context, socket, namespace, name string) ([]Container, error)
	// ContainerStates lists the containers of a namespace's Pods, of all
	// namespaces if it is empty: of each name the newest two, those that have
	// ended among them; the newest first.
	ContainerStates(ctx context.Context, socket, namespace string) ([]ContainerState, error)
	// Sandboxes lists the Pods of a namespace as the runtime knows them, of
	// all namespaces if it is empty.
	Sandboxes(ctx context.Context, socket, namespace string) ([]Sandbox, error)
	// StopContainer asks a container to end, and kills it after grace. The
	// kubelet starts that of a static Pod again.
	StopContainer(ctx context.Context, socket, id string, grace time.Duration) error
	// RemoveExited removes the containers of a name in Pods of a namespace that
	// have ended. The kubelet delays a restart (CrashLoopBackOff) by what it
	// finds of the containers before: where it finds none, it does not delay.
	RemoveExited(ctx context.Context, socket, namespace, name string) error
}

// Container is a running container.
type Container struct {
	ID      string
	Created time.Time
}

// RuntimeInfo is what the runtime says of itself.
type RuntimeInfo struct {
	Name, Version, APIVersion string
	Ready                     bool   // RuntimeReady condition
	Reason                    string // of not being ready
	CgroupDriver              string // systemd or cgroupfs; empty if the runtime does not say
	SandboxImage              string // the pause image; empty if the runtime does not say
}

// Facts tells what kind of host this is. Nothing here changes anything.
type Facts interface {
	Hostname() (string, error)
	// EffectiveUID is the user that this process acts as; 0 is root.
	EffectiveUID() int
	NumCPU() int
	// MemoryBytes is the size of the physical memory.
	MemoryBytes() (uint64, error)
	// Swap lists the active swap areas.
	Swap() ([]string, error)
	// LookPath finds an executable like the shell would.
	LookPath(name string) (string, error)
	// Addresses lists the addresses of all interfaces.
	Addresses() ([]netip.Addr, error)
	// DefaultAddress is the address of the interface that the default route
	// of one IP family leads through; the zero Addr if there is no such route.
	DefaultAddress(ipv6 bool) (netip.Addr, error)
	// Routes lists the destinations of the host's routing tables (main), the
	// default routes left out.
	Routes() ([]Route, error)
	// PortFree tries to listen on a TCP port of all addresses. Where another
	// process does, the error names it if it can be seen.
	PortFree(port int) error
	// PortHolder returns the process that listens on a TCP port of this host;
	// found is false where none does or where this user may not see it.
	PortHolder(port int) (p Process, found bool)
	// LookupHost resolves a name with the host's resolver.
	LookupHost(ctx context.Context, name string) ([]netip.Addr, error)
	// ProgramVersion runs `path --version` and returns its output, trimmed.
	ProgramVersion(ctx context.Context, path string) (string, error)
	// KernelRelease is uname -r.
	KernelRelease() (string, error)
	// ProxyFor returns the proxy that the environment names for a URL, empty
	// for none. A password in it is left out.
	ProxyFor(url string) (string, error)
	// Environ is the environment of this process, NAME=VALUE.
	Environ() []string
	// Probe does one HTTP GET and returns nil on 200; any other answer is a
	// *ProbeError. It is for health endpoints of this host: it uses no proxy
	// and follows no redirect.
	Probe(ctx context.Context, p Probe) error
	// Fetch is Probe with the answer's body, at most 64 KiB of it.
	Fetch(ctx context.Context, p Probe) ([]byte, error)
	// Date does one HTTP GET and returns the server's clock, to the second: the
	// Date of the answer, whatever its status.
	Date(ctx context.Context, p Probe) (time.Time, error)
	// Space tells how full the file system of path is.
	Space(path string) (Space, error)
	// Now is the host's clock.
	Now() time.Time
}

// Route is one entry of the routing table.
type Route struct {
	Destination netip.Prefix
	Interface   string
	// Gateway tells that the destination is reached through another host.
	Gateway bool
}

// Process is a running process as /proc shows it.
type Process struct {
	PID int
	// Name is the file name of its program.
	Name string
}

// Probe is one question to a health endpoint.
type Probe struct {
	URL string
	// CA is the PEM bundle that the server's certificate must chain to. Empty
	// means that any certificate will do: the components' loopback health
	// endpoints have self-signed ones, and the answer carries nothing secret.
	CA []byte
	// ClientCert and ClientKey are PEM, empty for none.
	ClientCert, ClientKey []byte
}
