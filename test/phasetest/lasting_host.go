// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

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

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/phases/step"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// LastingHost is a host whose systemd, kubelet and container runtime also keep their state in its directory, so that a later
// process finds a killed process's state. Each order to them changes one file.
type LastingHost struct {
	*teststage.Host
	Root  string
	Limit time.Duration // how long a run waits for others; 0 for the configured limits
	skip  []string      // phases
	// Plans makes the run a plan.
	Plans func(*step.Env)

	kubelet sync.Mutex // there's a single kubelet, however many runs wait for its files
}

func NewLastingHost(root string) *LastingHost {
	h := &LastingHost{Host: teststage.At(root), Root: root}
	h.On = teststage.Overrides{
		WriteOwned: h.Real.WriteOwned, Give: h.Real.SetOwner, GiveTree: h.Real.SetTreeOwner, LockAccounts: h.Real.LockAccounts,
		Unit: h.unit, Orders: map[host.UnitOrder]func(context.Context, string) error{
			host.EnableUnit: h.enable, host.StartUnit: h.start, host.StopUnit: h.stop, host.RestartUnit: h.restart,
		},
		ImagePresent: h.imagePresent, PullImage: h.Pull,
		Containers: h.containers, StopContainer: h.stopContainer, AwaitContainer: h.awaitContainer,
		Pods: h.pods, RemovePods: h.removePods, NetworkLeftovers: h.leftovers, RemoveLeftover: h.removeLeftover,
		AwaitFile: h.awaitFile, Unmount: h.Real.Unmount, Probe: h.probe, Fetch: h.fetch, PortHolder: h.portHolder, PortFree: h.portFree,
	}
	return h
}

const theKubelet = "kubelet.service"

// State other than files, by directory below the root.
const (
	KubeletActive  = "/var/fake/kubelet.service/active"
	kubeletEnabled = "/var/fake/kubelet.service/enabled"
	kubeletPID     = 77
)

// Furnish makes the root directory of a host that can become a node.
func Furnish(root string) error {
	// As with cgroup version 2.
	const controllers = "/sys/fs/cgroup/cgroup.controllers"
	for _, dir := range []string{"/etc/ssl/certs", "/var/lib", "/run", filepath.Dir(KubeletActive), images, "/proc/sys/net/ipv4", controllers} {
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

func removeFake(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (h *LastingHost) has(path string) bool {
	_, err := os.Stat(filepath.Join(h.Root, path))
	return err == nil
}

func (h *LastingHost) Note(path string) error {
	err := os.Mkdir(filepath.Join(h.Root, path), 0o755)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}

func (h *LastingHost) unit(_ context.Context, name string) (host.UnitState, error) {
	if name != theKubelet {
		return host.UnitState{LoadState: "not-found"}, nil
	}
	state := host.UnitState{LoadState: "loaded", ActiveState: "inactive", UnitFileState: "enabled"}
	if info, err := os.Stat(filepath.Join(h.Root, KubeletActive)); err == nil {
		state.ActiveState, state.MainPID, state.ActiveSince = "active", kubeletPID, info.ModTime()
	}
	return state, nil
}

// Orders about other units do nothing.
func (h *LastingHost) enable(_ context.Context, name string) error {
	if name != theKubelet {
		return nil
	}
	return h.Note(kubeletEnabled)
}

func (h *LastingHost) start(_ context.Context, name string) error {
	if name != theKubelet {
		return nil
	}
	return h.Note(KubeletActive)
}

func (h *LastingHost) stop(_ context.Context, name string) error {
	if name != theKubelet || !h.has(KubeletActive) {
		return nil
	}
	return os.Rename(filepath.Join(h.Root, KubeletActive), filepath.Join(h.Root, fmt.Sprintf("%s-%d", KubeletActive, time.Now().UnixNano())))
}

func (h *LastingHost) restart(context.Context, string) error {
	if !h.has(KubeletActive) {
		return h.Note(KubeletActive)
	}
	return h.Note(fmt.Sprintf("%s/%d", KubeletActive, time.Now().UnixNano())) // the time changes the directory, too
}

// awaitFile lets the kubelet write its files, if it runs.
func (h *LastingHost) awaitFile(ctx context.Context, path string, fits func([]byte) error) error {
	if h.has(KubeletActive) {
		if err := h.makeFiles(); err != nil {
			return err
		}
	}
	return h.Real.AwaitFile(ctx, path, fits)
}

// makeFiles writes the files below /var first: certificates before the files that name them.
func (h *LastingHost) makeFiles() error {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	for _, top := range []string{"/var", "/etc"} {
		made := filepath.Join(h.Root, "/var/fake/made")
		err := filepath.WalkDir(made+top, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			to := filepath.Join(h.Root, strings.TrimPrefix(path, made))
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
			if embedded := h.embedded(); embedded != nil && strings.HasSuffix(path, KubeletPEM) {
				data = embedded
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

// embedded returns the certificate in kubelet.conf, which a kubelet's first file of its own is a copy of.
func (h *LastingHost) embedded() []byte {
	conf, err := os.ReadFile(filepath.Join(h.Root, KubeletConf))
	if err != nil {
		return nil
	}
	cert, _, err := kubeconfig.ClientCertificate(conf)
	if err != nil {
		return nil
	}
	return cert
}

// WillMake sets a file the kubelet writes once it runs.
func WillMake(root, path, text string) error {
	path = filepath.Join(root, "/var/fake/made", path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

// probe finds everything healthy once the kubelet runs. With simulated containers, it first starts the missing containers.
func (h *LastingHost) probe(context.Context, host.Probe) error {
	if !h.has(KubeletActive) {
		return errors.New("connection refused")
	}
	if !h.has(fakeContainers) {
		return nil
	}
	return h.StartPods()
}

// fetch answers as probe does, but to a check, which leaves the containers as they are.
func (h *LastingHost) fetch(context.Context, host.Probe) ([]byte, error) {
	if !h.has(KubeletActive) {
		return nil, errors.New("connection refused")
	}
	return nil, nil
}

// holders are the programs that listen once the kubelet runs, by port.
var holders = map[int]string{10250: "kubelet", 6443: "kube-apiserver", 10259: "kube-scheduler", 10257: "kube-controller-manager", 2379: "etcd", 2380: "etcd"}

func (h *LastingHost) portHolder(port int) (host.Process, bool) {
	name := holders[port]
	if name == "" || !h.has(KubeletActive) || name != "kubelet" && !h.has("/etc/kubernetes/manifests/"+name+".yaml") {
		return host.Process{}, false
	}
	return host.Process{PID: kubeletPID, Name: name}, true
}

func (h *LastingHost) portFree(_ string, port int) error {
	if p, held := h.portHolder(port); held {
		return fmt.Errorf("port %d is held by %s", port, p.Name)
	}
	return nil
}

// FakeLeftovers has a directory for each network leftover in the kernel, by name.
const FakeLeftovers = "/var/fake/leftovers"

func (h *LastingHost) leftovers(_ context.Context, bridge string) ([]host.Leftover, error) {
	if !h.has(filepath.Join(FakeLeftovers, bridge)) {
		return nil, nil
	}
	return []host.Leftover{{Kind: host.Link, Name: bridge}}, nil
}

func (h *LastingHost) removeLeftover(_ context.Context, l host.Leftover) error {
	return h.Remove(filepath.Join(FakeLeftovers, l.Name))
}

func (h *LastingHost) Names(dir string) (names []string) {
	entries, _ := h.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (h *LastingHost) Members() etcd.Etcd { return lastingMembers{host: h} }
