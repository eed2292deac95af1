// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// lastingHost is a host whose systemd, kubelet and container runtime keep their state in its directory as well, so that a
// later process finds what a killed one did. Each order to them changes one file.
type lastingHost struct {
	*teststage.Host
	root  string
	limit time.Duration // how long a run waits for others; 0 for the limits of the configuration
	skip  []string      // phases
	// plans makes the run a plan.
	plans func(*Env)

	kubelet sync.Mutex // there is only one kubelet, however many runs wait for its files
}

func newLastingHost(root string) *lastingHost {
	h := &lastingHost{Host: teststage.At(root), root: root}
	h.On = teststage.Overrides{
		WriteOwned: h.Real.WriteOwned, Give: h.Real.Give, GiveTree: h.Real.GiveTree, LockAccounts: h.Real.LockAccounts,
		Unit: h.unit, EnableUnit: h.enable, StartUnit: h.start, StopUnit: h.stop, RestartUnit: h.restart,
		ImagePresent: h.imagePresent, PullImage: h.pull,
		Containers: h.containers, StopContainer: h.stopContainer, AwaitContainer: h.awaitContainer,
		Pods: h.pods, RemovePods: h.removePods, NetworkLeftovers: h.leftovers, RemoveLeftover: h.removeLeftover,
		AwaitFile: h.awaitFile, Unmount: h.Real.Unmount, Probe: h.probe, Fetch: h.fetch, PortHolder: h.portHolder, PortFree: h.portFree,
	}
	return h
}

const theKubelet = "kubelet.service"

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
	for path, text := range map[string]string{"/proc/sys/net/ipv4/ip_forward": "1\n", "/etc/resolv.conf": "nameserver 192.0.2.1\n"} {
		if err := os.WriteFile(filepath.Join(root, path), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeFake removes a file of a state, if it is there.
func removeFake(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

func (h *lastingHost) unit(_ context.Context, name string) (host.UnitState, error) {
	if name != theKubelet {
		return host.UnitState{LoadState: "not-found"}, nil
	}
	state := host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}
	if info, err := os.Stat(filepath.Join(h.root, kubeletActive)); err == nil {
		state.ActiveState, state.MainPID, state.ActiveSince = "active", kubeletPID, info.ModTime()
	}
	return state, nil
}

func (h *lastingHost) enable(context.Context, string) error { return h.note(kubeletEnabled) }
func (h *lastingHost) start(context.Context, string) error  { return h.note(kubeletActive) }

func (h *lastingHost) stop(context.Context, string) error {
	if !h.has(kubeletActive) {
		return nil
	}
	return os.Rename(filepath.Join(h.root, kubeletActive), filepath.Join(h.root, fmt.Sprintf("%s-%d", kubeletActive, time.Now().UnixNano())))
}

func (h *lastingHost) restart(context.Context, string) error {
	if !h.has(kubeletActive) {
		return h.note(kubeletActive)
	}
	return h.note(fmt.Sprintf("%s/%d", kubeletActive, time.Now().UnixNano())) // the time changes the directory as well
}

// awaitFile lets the kubelet, if it runs, write its files.
func (h *lastingHost) awaitFile(ctx context.Context, path string, fits func([]byte) error) error {
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
			_, err = linux.New().WriteFile(to, data, 0o600)
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

// probe finds everything healthy once the kubelet runs. Where containers are simulated, it has started what was missing.
func (h *lastingHost) probe(context.Context, host.Probe) error {
	if !h.has(kubeletActive) {
		return errors.New("connection refused")
	}
	if !h.has(fakeContainers) {
		return nil
	}
	return h.startPods()
}

func (h *lastingHost) fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	return nil, h.probe(ctx, p)
}

func imageMark(image string) string {
	return images + "/" + strings.NewReplacer("/", "_", ":", "_").Replace(image)
}

func (h *lastingHost) imagePresent(_ context.Context, _, image string) (bool, error) {
	return h.has(imageMark(image)), nil
}

func (h *lastingHost) pull(_ context.Context, _, image string) error {
	return h.note(imageMark(image))
}

// holders are the programs that listen once the kubelet runs, by port.
var holders = map[int]string{10250: "kubelet", 6443: "kube-apiserver", 10259: "kube-scheduler", 10257: "kube-controller-manager", 2379: "etcd", 2380: "etcd"}

func (h *lastingHost) portHolder(port int) (host.Process, bool) {
	name := holders[port]
	if name == "" || !h.has(kubeletActive) || name != "kubelet" && !h.has("/etc/kubernetes/manifests/"+name+".yaml") {
		return host.Process{}, false
	}
	return host.Process{PID: kubeletPID, Name: name}, true
}

func (h *lastingHost) portFree(_ string, port int) error {
	if p, held := h.portHolder(port); held {
		return fmt.Errorf("port %d is held by %s", port, p.Name)
	}
	return nil
}

// Pods of the runtime, and what the kernel has of networks: a directory of its name for each.
const (
	fakePods      = "/var/fake/pods"
	fakeLeftovers = "/var/fake/leftovers"
)

func (h *lastingHost) pods(context.Context, string) (pods []host.Pod, _ error) {
	for _, name := range h.names(fakePods) {
		pods = append(pods, host.Pod{ID: name, Namespace: "kube-system", Name: name})
	}
	return pods, nil
}

func (h *lastingHost) removePods(_ context.Context, _ string, pods []host.Pod) ([]host.Pod, error) {
	for _, p := range pods {
		if err := h.Remove(filepath.Join(fakePods, p.ID)); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

func (h *lastingHost) leftovers(_ context.Context, bridge string) ([]host.Leftover, error) {
	if !h.has(filepath.Join(fakeLeftovers, bridge)) {
		return nil, nil
	}
	return []host.Leftover{{Kind: host.Link, Name: bridge}}, nil
}

func (h *lastingHost) removeLeftover(_ context.Context, l host.Leftover) error {
	return h.Remove(filepath.Join(fakeLeftovers, l.Name))
}

func (h *lastingHost) names(dir string) (names []string) {
	entries, _ := h.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
