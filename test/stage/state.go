// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"io/fs"
	"net/netip"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// State is a host's state beside its files.
type State struct {
	Units   map[string]host.UnitState // by name; other units don't exist
	Journal []host.JournalEntry       // of the kubelet

	Runtime    *host.RuntimeInfo // nil: it doesn't answer
	Images     []host.Image
	AllImages  bool     // the runtime has every image
	Unsettled  []string // images being fetched when the power failed
	ImageDir   string
	Running    map[string][]host.Container
	Containers []host.ContainerState
	Sandboxes  []host.Sandbox
	Pods       []host.Pod

	Hostname  string
	UID, CPUs int
	Memory    uint64
	Swap      []string
	SELinux   bool
	Kernel    string
	Programs  map[string]string // their answers to --version; nil: every program exists, in the default version
	Environ   []string
	Time      time.Time             // zero: the real one
	Date      time.Time             // of servers; zero: this host's
	Space     map[string]host.Space // of paths; others are as full as /
	Syncs     []time.Duration

	Interfaces []host.Interface
	Addresses  []netip.Addr
	Default    []netip.Addr // of the default routes
	Routes     []host.Route
	Held       map[int]host.Process // by port; a zero Process is unknown
	Leftovers  []host.Leftover
	Names      map[string]string // nil: every name has this host's address
	Answers    map[string]string // by URL; nil: everything is healthy, and says nothing
}

func ordinary() State {
	address := netip.MustParseAddr("192.0.2.11")
	return State{
		Units:    map[string]host.UnitState{kubelet: {LoadState: "loaded", ActiveState: "inactive"}},
		Runtime:  &host.RuntimeInfo{Name: "containerd", Version: "2.1.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd"},
		ImageDir: "/var/lib/containerd",
		Running:  map[string][]host.Container{},
		// The kubelet has made this sandbox already, so nothing has to wait for it.
		Sandboxes: []host.Sandbox{{ID: "kube-proxy", Pod: "kube-proxy-abcde", Namespace: "kube-system", Ready: true}},
		Hostname:  "cp-1", CPUs: 2, Memory: 4 << 30, Kernel: "6.12.1-amd64",
		Space:      map[string]host.Space{"/": {Free: 90 << 30, Total: 100 << 30, FreeInodes: 900_000, TotalInodes: 1_000_000}},
		Syncs:      []time.Duration{time.Millisecond},
		Interfaces: []host.Interface{{Name: "eth0", MTU: 1500, Default: true, Addresses: []netip.Addr{address}}},
		Addresses:  []netip.Addr{netip.MustParseAddr("127.0.0.1"), address},
		Default:    []netip.Addr{address},
		Routes:     []host.Route{{Destination: netip.MustParsePrefix("192.0.2.0/24"), Interface: "eth0"}},
		Held:       map[int]host.Process{},
	}
}

const kubelet = "kubelet.service"

// Overrides are methods replaced by a test. Jobs, Before and Fail work as for the others.
type Overrides struct {
	AwaitFile  func(ctx context.Context, path string, accept func([]byte) error) error
	RemoveTree func(path string) (host.Removal, error)
	Unmount    func(path string, flags []string) error

	WriteOwned   func(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error)
	Give         func(path string, owner host.Owner, mode fs.FileMode) error
	GiveTree     func(path string, owner host.Owner) ([]string, error)
	LockAccounts func() (func(), error)

	Unit   func(ctx context.Context, name string) (host.UnitState, error)
	Orders map[host.UnitOrder]func(ctx context.Context, unit string) error // of OrderUnit

	RuntimeInfo     func(ctx context.Context, socket string) (host.RuntimeInfo, error)
	ImagePresent    func(ctx context.Context, socket, image string) (bool, error)
	PullImage       func(ctx context.Context, socket, image string) error
	Containers      func(ctx context.Context, socket, namespace, name string) ([]host.Container, error)
	AwaitContainer  func(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error
	ContainerStates func(ctx context.Context, socket, namespace string) ([]host.ContainerState, error)
	StopContainer   func(ctx context.Context, socket, id string, grace time.Duration) error
	Pods            func(ctx context.Context, socket string) ([]host.Pod, error)
	RemovePods      func(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error)
	AwaitSettled    func(ctx context.Context, socket string, since time.Time) error

	LookPath         func(name string) (string, error)
	ProgramVersion   func(ctx context.Context, path string) (string, error)
	ProxyFor         func(url string) (string, error)
	Now              func() time.Time
	CPUTime          func() time.Duration
	LoadModule       func(ctx context.Context, name string) error
	PortFree         func(address string, port int) error
	PortHolder       func(port int) (host.Process, bool)
	NetworkLeftovers func(ctx context.Context, bridge string) ([]host.Leftover, error)
	RemoveLeftover   func(ctx context.Context, l host.Leftover) error

	Probe      func(ctx context.Context, p host.Probe) error
	Fetch      func(ctx context.Context, p host.Probe) ([]byte, error)
	Date       func(ctx context.Context, p host.Probe) (time.Time, error)
	LookupHost func(ctx context.Context, name string) ([]netip.Addr, error)
	Answers    func(ctx context.Context, at netip.AddrPort) (bool, error)
	RunProgram func(ctx context.Context, words []string) error
}
