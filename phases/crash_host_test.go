// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// lastingHost is a host in a directory. Its systemd, kubelet and container runtime keep their state in that directory
// as well, so that a later process finds what a killed one did. Each order to them changes one file.
type lastingHost struct {
	*host.Real
	root  string
	limit time.Duration
	skip  []string // phases

	kubelet sync.Mutex // there is only one kubelet, however many runs wait for its files
}

func (h *lastingHost) patience() time.Duration { return h.limit }
func (h *lastingHost) skipped() []string       { return h.skip }

func newLastingHost(root string) *lastingHost {
	return &lastingHost{Real: host.NewAt(root), root: root}
}

// State other than files, by directory below the root.
const (
	kubeletActive  = "/var/fake/kubelet.service/active"
	kubeletEnabled = "/var/fake/kubelet.service/enabled"
	images         = "/var/fake/images"
	kubeletPID     = 77
)

// furnish makes a root directory of a host that can become a node.
func furnish(root string) error {
	// As on a host with cgroup version 2.
	const controllers = "/sys/fs/cgroup/cgroup.controllers"
	for _, dir := range []string{"/etc/ssl/certs", "/var/lib", "/run", filepath.Dir(kubeletActive), images, "/proc/sys/net/ipv4", controllers} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(root, "/proc/sys/net/ipv4/ip_forward"), []byte("1\n"), 0o644)
}

func (h *lastingHost) has(path string) bool {
	_, err := os.Stat(filepath.Join(h.root, path))
	return err == nil
}

func (h *lastingHost) note(path string) error {
	err := os.Mkdir(filepath.Join(h.root, path), 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

func (h *lastingHost) Unit(_ context.Context, name string) (host.UnitState, error) {
	if name != kubeletUnit {
		return host.UnitState{LoadState: "not-found"}, nil
	}
	state := host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}
	if info, err := os.Stat(filepath.Join(h.root, kubeletActive)); err == nil {
		state.ActiveState, state.MainPID, state.ActiveSince = "active", kubeletPID, info.ModTime()
	}
	return state, nil
}

func (h *lastingHost) ReloadUnits(context.Context) error           { return nil }
func (h *lastingHost) EnableUnit(context.Context, string) error    { return h.note(kubeletEnabled) }
func (h *lastingHost) StartUnit(_ context.Context, _ string) error { return h.note(kubeletActive) }

func (h *lastingHost) SuspendUnit(context.Context, string) error { return nil }
func (h *lastingHost) KillUnit(context.Context, string) error    { return nil }

func (h *lastingHost) StopUnit(context.Context, string) error {
	if !h.has(kubeletActive) {
		return nil
	}
	return os.Rename(filepath.Join(h.root, kubeletActive), filepath.Join(h.root, fmt.Sprintf("%s-%d", kubeletActive, time.Now().UnixNano())))
}

func (h *lastingHost) RestartUnit(context.Context, string) error {
	if !h.has(kubeletActive) {
		return h.note(kubeletActive)
	}
	return h.note(fmt.Sprintf("%s/%d", kubeletActive, time.Now().UnixNano())) // the time changes the directory as well
}

// AwaitFile lets the kubelet, if it runs, write its files.
func (h *lastingHost) AwaitFile(ctx context.Context, path string, fits func([]byte) error) error {
	if h.has(kubeletActive) {
		if err := h.makeFiles(); err != nil {
			return err
		}
	}
	return h.Real.AwaitFile(ctx, path, fits)
}

// makeFiles writes the files below /var first: certificates before the files that name them.
func (h *lastingHost) makeFiles() error {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	for _, top := range []string{"/var", "/etc"} {
		made := filepath.Join(h.root, "/var/fake/made")
		err := filepath.WalkDir(made+top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			to := filepath.Join(h.root, strings.TrimPrefix(path, made))
			if _, there := os.Stat(to); err != nil || there == nil {
				return err
			}
			if d.IsDir() {
				return os.Mkdir(to, 0o755)
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			_, err = host.New().WriteFile(to, data, 0o600)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// willMake sets what the kubelet writes once it runs.
func willMake(root, path, text string) error {
	path = filepath.Join(root, "/var/fake/made", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// Probe finds everything healthy once the kubelet runs. Where containers are simulated, it has started what was missing.
func (h *lastingHost) Probe(_ context.Context, p host.Probe) error {
	if !h.has(kubeletActive) {
		return errors.New("connection refused")
	}
	if !h.has(fakeContainers) {
		return nil
	}
	return h.startPods()
}

func (h *lastingHost) Fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	return nil, h.Probe(ctx, p)
}

func (h *lastingHost) RuntimeInfo(context.Context, string) (host.RuntimeInfo, error) {
	return host.RuntimeInfo{Name: "containerd", Version: "2.1.0", APIVersion: "v1", Ready: true, CgroupDriver: "systemd"}, nil
}

func imageMark(image string) string {
	return images + "/" + strings.NewReplacer("/", "_", ":", "_").Replace(image)
}

func (h *lastingHost) ImagePresent(_ context.Context, _, image string) (bool, error) {
	return h.has(imageMark(image)), nil
}

func (h *lastingHost) PullImage(_ context.Context, _, image string) error {
	return h.note(imageMark(image))
}

// A diagnosis finds nothing wrong.
func (h *lastingHost) Journal(context.Context, string, time.Time, int) ([]host.JournalEntry, error) {
	return nil, nil
}

func (h *lastingHost) ContainerStates(context.Context, string, string) ([]host.ContainerState, error) {
	return nil, nil
}

func (h *lastingHost) Sandboxes(context.Context, string, string) ([]host.Sandbox, error) {
	return nil, nil
}

func (h *lastingHost) ImageDir(context.Context, string) (string, error) { return "", nil }

func (h *lastingHost) LookupHost(context.Context, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("192.0.2.11")}, nil
}

// holders are the programs that listen once the kubelet runs, by port.
var holders = map[int]string{10250: "kubelet", 6443: "kube-apiserver", 10259: "kube-scheduler", 10257: "kube-controller-manager", 2379: "etcd", 2380: "etcd"}

func (h *lastingHost) PortHolder(port int) (host.Process, bool) {
	name := holders[port]
	if name == "" || !h.has(kubeletActive) || name != "kubelet" && !h.has("/etc/kubernetes/manifests/"+name+".yaml") {
		return host.Process{}, false
	}
	return host.Process{PID: kubeletPID, Name: name}, true
}

func (h *lastingHost) PortFree(_ string, port int) error {
	if p, held := h.PortHolder(port); held {
		return fmt.Errorf("port %d is held by %s", port, p.Name)
	}
	return nil
}

// SyncTimes does nothing, because it would cost each run a second.
func (h *lastingHost) SyncTimes(context.Context, string) ([]time.Duration, error) {
	return []time.Duration{time.Millisecond}, nil
}

func (h *lastingHost) EffectiveUID() int                 { return 0 }
func (h *lastingHost) NumCPU() int                       { return 2 }
func (h *lastingHost) MemoryBytes() (uint64, error)      { return 4 << 30, nil }
func (h *lastingHost) Swap() ([]string, error)           { return nil, nil }
func (h *lastingHost) Environ() []string                 { return nil }
func (h *lastingHost) LookPath(n string) (string, error) { return "/usr/bin/" + n, nil }

func (h *lastingHost) ProgramVersion(context.Context, string) (string, error) {
	return "Kubernetes v1.37.2", nil
}
