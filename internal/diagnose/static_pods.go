// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

const (
	// settled is how long a container must run before the previous container's end doesn't count any more.
	settled = 5 * time.Second
	// logTail is how many bytes of a container's log a look reads.
	logTail = 16 << 10
)

// The static Pods of a control plane.
const (
	etcdPod              = manifests.EtcdName
	apiServerPod         = manifests.APIServerName
	controllerManagerPod = manifests.ControllerManagerName
	schedulerPod         = manifests.SchedulerName
)

// components lists the parts of the control plane that a wait waits for.
func components() []string {
	return append([]string{etcdPod}, alwaysNeeded()...)
}

// alwaysNeeded lists the components of any control plane: its etcd may be on other hosts.
func alwaysNeeded() []string { return []string{apiServerPod, controllerManagerPod, schedulerPod} }

// isControlPlane reports whether this host has a manifest of one of them.
func (o *observation) isControlPlane() bool {
	return slices.ContainsFunc(alwaysNeeded(), func(name string) bool { return o.pod(name) != nil })
}

// needed reports whether the Pod is part of the control plane. The user's own may wait for it, such as a load balancer.
func (p *staticPod) needed() bool { return slices.Contains(components(), p.name) }

// staticPod is a manifest in the kubelet's directory, with its containers.
type staticPod struct {
	name    string // of its first container
	pod     string // NAMESPACE/NAME of the Pod
	path    string
	changed time.Time
	whole   *corev1.Pod
	spec    corev1.Container
	args    map[string]string // its flags without dashes; a repeated flag's last value
	// containers are this manifest's, newest first.
	containers []host.ContainerState
	// said and lines are the end of the log of the container that counts: it has ended if dead is set, else it runs.
	said  []said
	lines []string
	dead  bool
}

// files lists the files in a directory that the kubelet reads; none for an empty name.
func files(h View, dir string) []string {
	if dir == "" {
		return nil
	}
	paths, _ := host.VisibleFiles(h, dir) // it needn't exist
	return paths
}

// staticPods reads the manifests. It skips files that aren't Pods: the kubelet's journal reports them.
func staticPods(h View, t Target, containers []host.ContainerState) []staticPod {
	var pods []staticPod
	for _, path := range files(h, t.Manifests) {
		data, err := h.ReadFile(path)
		if err != nil {
			continue
		}
		pod, err := manifests.DecodePod(data)
		if err != nil {
			continue
		}
		p := staticPod{path: path, whole: pod, spec: pod.Spec.Containers[0], name: pod.Spec.Containers[0].Name, pod: pod.Namespace + "/" + pod.Name}
		if info, err := h.Lstat(path); err == nil {
			p.changed = info.ModTime()
		}
		p.args = map[string]string{}
		for _, f := range manifests.PodFlags(pod) {
			p.args[f.Name] = f.Value
		}
		p.attach(h, t, containers)
		pods = append(pods, p)
	}
	return pods
}

// attach finds the containers created from the current manifest. In a wait, it skips containers that ended earlier: their
// problems may have been fixed.
func (p *staticPod) attach(h View, t Target, containers []host.ContainerState) {
	for _, c := range containers {
		old := c.Created.Before(p.changed) || t.Waiting && c.State == "exited" && c.Finished.Before(t.Since)
		if c.Name == p.name && !old {
			p.containers = append(p.containers, c)
		}
	}
	if len(p.containers) == 0 {
		return
	}
	counts := p.containers[0]
	young := counts.State != "exited" && h.Now().Sub(counts.Created) < settled
	if young && len(p.containers) > 1 {
		counts = p.containers[1]
	}
	p.dead = counts.State == "exited"
	from := t.Since
	if p.dead {
		from = time.Time{}
	}
	p.said = tail(h, counts.LogPath, from)
	p.lines = texts(p.said)
}

// file returns the path on this host of the file named in a flag; empty if the flag is missing, or if the file is only in the container.
func (p *staticPod) file(flag string) string {
	path, _ := thisnode.OnHost(p.whole, p.args[flag])
	return path
}

// dataDir returns etcd's data directory on this host.
func (p *staticPod) dataDir() string { return thisnode.OnHostOr(p.whole, p.args["data-dir"]) }

func (p *staticPod) running() bool {
	return len(p.containers) > 0 && p.containers[0].State == "running"
}

func (p *staticPod) ended() host.ContainerState {
	for _, c := range p.containers {
		if c.State == "exited" {
			return c
		}
	}
	return host.ContainerState{}
}

// exits counts how often known containers of the Pod have ended.
func (p *staticPod) exits() int {
	if len(p.containers) == 0 {
		return 0
	}
	n := p.containers[0].Restarts
	if p.containers[0].State == "exited" {
		n++
	}
	return n
}

// tail returns the last lines of a container's log since a time. Each begins with a time, the stream, and F (full line) or P
// (part): https://github.com/kubernetes/design-proposals-archive/blob/main/node/kubelet-cri-logging.md
func tail(h View, path string, from time.Time) []said {
	if path == "" {
		return nil
	}
	data, err := host.ReadTail(h, path, logTail)
	if err != nil {
		return nil
	}
	var lines []said
	var part strings.Builder
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimRight(line, "\n"), " ", 4)
		if len(f) < 4 {
			continue // its beginning was cut off
		}
		at, err := time.Parse(time.RFC3339Nano, f[0])
		if err != nil || at.Before(from) {
			continue
		}
		part.WriteString(f[3])
		if f[2] == "P" {
			continue
		}
		if n := len(lines); n > 0 && continues(lines[n-1].text, part.String()) {
			lines[n-1].text += " " + strings.TrimSpace(part.String())
		} else if !informative(part.String()) {
			lines = append(lines, said{part.String(), at, at})
		}
		part.Reset()
	}
	return lines
}

// lastLine returns the text of a container's last complete log line, as tail understands it; empty if there's none.
func lastLine(h View, path string) string {
	const longest = 4 << 10
	data, err := host.ReadTail(h, path, longest)
	if err != nil {
		return ""
	}
	lines := strings.Split(string(data), "\n")
	if len(lines) < 2 {
		return ""
	}
	fields := strings.SplitN(lines[len(lines)-2], " ", 4)
	return fields[len(fields)-1]
}

func (o *observation) pod(name string) *staticPod {
	for i := range o.pods {
		if o.pods[i].name == name {
			return &o.pods[i]
		}
	}
	return nil
}
