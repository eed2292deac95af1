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
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// images has a directory for each image of the container runtime.
const images = "/var/fake/images"

func ImageMark(image string) string {
	return images + "/" + strings.NewReplacer("/", "_", ":", "_").Replace(image)
}

func (h *LastingHost) imagePresent(_ context.Context, _, image string) (bool, error) {
	return h.has(ImageMark(image)), nil
}

func (h *LastingHost) Pull(_ context.Context, _, image string) error {
	return h.Note(ImageMark(image))
}

// FakePods has a directory for each Pod of the container runtime, by name.
const FakePods = "/var/fake/pods"

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
