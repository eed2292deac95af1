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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/manifests"
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
		WriteOwned: h.Real.WriteOwned, Give: h.Real.Give, GiveTree: h.Real.GiveTree, LockAccounts: h.Real.LockAccounts,
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
	images         = "/var/fake/images"
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

func (h *LastingHost) enable(context.Context, string) error { return h.Note(kubeletEnabled) }

func (h *LastingHost) start(context.Context, string) error { return h.Note(KubeletActive) }

func (h *LastingHost) stop(context.Context, string) error {
	if !h.has(KubeletActive) {
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
			_, err = linux.New().WriteFile(to, data, 0o600)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
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

func (h *LastingHost) fetch(ctx context.Context, p host.Probe) ([]byte, error) {
	return nil, h.probe(ctx, p)
}

func ImageMark(image string) string {
	return images + "/" + strings.NewReplacer("/", "_", ":", "_").Replace(image)
}

func (h *LastingHost) imagePresent(_ context.Context, _, image string) (bool, error) {
	return h.has(ImageMark(image)), nil
}

func (h *LastingHost) Pull(_ context.Context, _, image string) error {
	return h.Note(ImageMark(image))
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

// The runtime's Pods, and the kernel's network leftovers: a directory for each, by name.
const (
	FakePods      = "/var/fake/pods"
	FakeLeftovers = "/var/fake/leftovers"
)

func (h *LastingHost) pods(context.Context, string) (pods []host.Pod, _ error) {
	for _, name := range h.Names(FakePods) {
		pods = append(pods, host.Pod{ID: name, Namespace: "kube-system", Name: name})
	}
	return pods, nil
}

func (h *LastingHost) removePods(_ context.Context, _ string, pods []host.Pod) ([]host.Pod, error) {
	for _, p := range pods {
		if err := h.Remove(filepath.Join(FakePods, p.ID)); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

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

// The lasting host's containers: a directory for each, NANOSECONDS IMAGE, below its component's. Each order to the runtime makes
// or removes one directory, so a kill can't come in between.
const fakeContainers = "/var/fake/containers"

func (h *LastingHost) containers(_ context.Context, _, _, name string) (list []host.Container, err error) {
	entries, err := os.ReadDir(filepath.Join(h.Root, fakeContainers, name))
	for _, e := range entries {
		created, image, _ := strings.Cut(e.Name(), " ")
		nanoseconds, err := strconv.ParseInt(created, 10, 64)
		if err != nil {
			return nil, err
		}
		list = append(list, host.Container{ID: name + "/" + e.Name(), Created: time.Unix(0, nanoseconds), Image: strings.ReplaceAll(image, "!", "/")})
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return list, err
}

func (h *LastingHost) stopContainer(_ context.Context, _, id string, _ time.Duration) error {
	return removeFake(filepath.Join(h.Root, fakeContainers, id))
}

// awaitContainer lets the kubelet look at its static Pods, if it runs.
func (h *LastingHost) awaitContainer(ctx context.Context, socket, namespace, name string, accept func(host.Container) bool) error {
	for {
		if h.has(KubeletActive) {
			if err := h.StartPods(); err != nil {
				return err
			}
		}
		list, err := h.containers(ctx, socket, namespace, name)
		if err != nil || slices.ContainsFunc(list, accept) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no container %s: %v", name, list)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// StartPods replaces the containers that don't match the current static Pods.
func (h *LastingHost) StartPods() error {
	h.kubelet.Lock()
	defer h.kubelet.Unlock()
	paths, err := filepath.Glob(filepath.Join(h.Root, "/etc/kubernetes/manifests/*.yaml"))
	for _, path := range paths {
		err = errors.Join(err, h.startPod(path))
	}
	return err
}

func (h *LastingHost) startPod(path string) error {
	manifest, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	name, image := strings.TrimSuffix(filepath.Base(path), ".yaml"), quickImageOf(manifest)
	current, err := h.outdated(name, path, image)
	if current || err != nil {
		return err
	}
	if name == manifests.EtcdName && h.has(HasEtcdData) && !h.has("/var/lib/etcd/member") {
		return errors.New("etcd would begin a cluster without data")
	}
	return os.MkdirAll(filepath.Join(h.Root, fakeContainers, name, fmt.Sprintf("%d %s", time.Now().UnixNano(), strings.ReplaceAll(image, "/", "!"))), 0o755)
}

var imageLine = regexp.MustCompile(`(?m)^ +image: (\S+)$`)

// quickImageOf is ImageOf for callers that ask a hundred times a second: parsing YAML would be most of their tests' cost.
func quickImageOf(manifest []byte) string {
	if line := imageLine.FindSubmatch(manifest); line != nil {
		return string(line[1])
	}
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Image
}

// outdated removes the containers a static Pod doesn't describe, and reports whether a current container is left.
func (h *LastingHost) outdated(name, path, image string) (current bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	list, err := h.containers(context.Background(), "", "", name)
	for _, c := range list {
		if c.Image == image && !c.Created.Before(info.ModTime()) {
			current = true
			continue
		}
		err = errors.Join(err, h.stopContainer(context.Background(), "", c.ID, 0))
	}
	return current, err
}

// RunningPods returns each component's image, and whether it was started with the current manifest.
func (h *LastingHost) RunningPods() map[string]string {
	running := map[string]string{}
	for _, name := range []string{manifests.EtcdName, manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
		list, err := h.containers(context.Background(), "", "", name)
		info, _ := os.Stat(filepath.Join(h.Root, "/etc/kubernetes/manifests", name+".yaml"))
		for _, c := range list {
			running["container of "+name] += fmt.Sprint(c.Image, " up to date: ", info != nil && !c.Created.Before(info.ModTime()))
		}
		if err != nil {
			running["container of "+name] = err.Error()
		}
	}
	return running
}

// HasPods gives the runtime these Pods. When it removes a Pod, it also removes its network plugin's files, in the order of the
// real host.
func (h *LastingHost) HasPods(all []host.Pod) {
	h.On.Pods = func(context.Context, string) ([]host.Pod, error) {
		return slices.DeleteFunc(slices.Clone(all), func(p host.Pod) bool { return !slices.Contains(h.Names(FakePods), p.ID) }), nil
	}
	h.On.RemovePods = func(ctx context.Context, socket string, pods []host.Pod) ([]host.Pod, error) {
		var own, shared []host.Pod
		for _, p := range pods {
			if p.HostNetwork {
				shared = append(shared, p)
				continue
			}
			own = append(own, p)
			for _, path := range []string{"results/pods-" + p.ID + "-eth0", "results/cni-loopback-" + p.ID + "-lo", "networks/pods/10.244.0.1" + p.ID} {
				if err := h.Remove(filepath.Join("/var/lib/cni", path)); err != nil {
					return nil, err
				}
			}
		}
		return h.removePods(ctx, socket, slices.Concat(own, shared))
	}
}
