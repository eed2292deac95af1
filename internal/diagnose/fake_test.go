// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/host"
)

// at is the time of the fake host.
var at = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// fakeHost is a node made of values. What healthy returns has nothing wrong.
type fakeHost struct {
	host.Reader // nil: panics if a cause asks for something else
	host.Remote

	files     fstest.MapFS
	units     map[string]host.UnitState
	journal   []host.JournalEntry
	runtime   host.RuntimeInfo
	noSystemd bool
	noInit    bool
	noRuntime bool
	hangs     bool            // the runtime
	absent    map[string]bool // images
	states    []host.ContainerState
	swap      []string
	held      map[int]host.Process
	names     map[string]bool // that do not resolve
	space     map[string]host.Space
	answers   map[string]error
	bodies    map[string]string
	apart     time.Duration // of the API server's clock
}

const (
	socket    = "unix:///run/containerd/containerd.sock"
	manifests = "/etc/kubernetes/manifests"
)

func healthy() *fakeHost {
	h := &fakeHost{
		files: fstest.MapFS{},
		units: map[string]host.UnitState{
			kubeletService:       {LoadState: "loaded", ActiveState: "active", SubState: "running", ActiveSince: at.Add(-time.Minute), MainPID: 7},
			"containerd.service": {LoadState: "loaded", ActiveState: "active", SubState: "running"},
		},
		runtime: host.RuntimeInfo{Ready: true, CgroupDriver: "systemd"},
		absent:  map[string]bool{}, held: map[int]host.Process{}, names: map[string]bool{}, space: map[string]host.Space{},
		answers: map[string]error{}, bodies: map[string]string{},
	}
	h.pod("etcd", "--data-dir=/var/lib/etcd", "--advertise-client-urls=https://192.0.2.11:2379")
	h.pod("kube-apiserver", "--advertise-address=192.0.2.11")
	h.pod("kube-controller-manager", "--bind-address=127.0.0.1")
	h.pod("kube-scheduler", "--bind-address=127.0.0.1")
	h.put("/var/lib/etcd/member", "")
	h.put("/var/lib/kubelet/config.yaml", "")
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		h.container(name, "running", at.Add(-30*time.Second))
	}
	return h
}

func (h *fakeHost) put(path, text string) {
	h.files[path[1:]] = &fstest.MapFile{Data: []byte(text), Mode: 0o600, ModTime: at.Add(-40 * time.Second)}
}

func (h *fakeHost) pod(name string, args ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: kube-system}\nspec:\n  containers:\n  - name: %s\n", name, name)
	fmt.Fprintf(&b, "    image: registry.k8s.io/%s:v1\n    livenessProbe: {httpGet: {host: 127.0.0.1, port: 1, path: /livez}}\n    command:\n    - %s\n", name, name)
	for _, a := range args {
		fmt.Fprintf(&b, "    - %s\n", a)
	}
	h.put(manifests+"/"+name+".yaml", b.String())
}

// container adds a container to a static Pod, newer than the ones before, with its log.
func (h *fakeHost) container(name, state string, created time.Time, lines ...string) {
	c := host.ContainerState{
		ID: fmt.Sprintf("%s-%d", name, len(h.states)), Name: name, Pod: name + "-cp-1", State: state, Created: created,
		LogPath: fmt.Sprintf("/var/log/pods/%s/%d.log", name, len(h.states)),
	}
	for _, old := range h.states {
		if old.Name == name {
			c.Restarts++
		}
	}
	if state == "exited" {
		c.ExitCode, c.Reason, c.Finished = 1, "Error", created.Add(time.Second)
	}
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%s stderr F %s\n", created.Format(time.RFC3339Nano), line)
	}
	h.put(c.LogPath, b.String())
	h.states = append([]host.ContainerState{c}, h.states...)
}

// crashed replaces a static Pod's container with one that has exited.
func (h *fakeHost) crashed(name string, lines ...string) {
	var kept []host.ContainerState
	for _, c := range h.states {
		if c.Name != name {
			kept = append(kept, c)
		}
	}
	h.states = kept
	h.container(name, "exited", at.Add(-3*time.Second), lines...)
}

// insisted logs a line twice, two seconds apart.
func (h *fakeHost) insisted(line string) {
	h.journal = append(h.journal, host.JournalEntry{Time: at.Add(-4 * time.Second), Program: "kubelet", Message: line})
	h.said(line)
}

// saidBefore logs a line twice some time ago, and not since.
func (h *fakeHost) saidBefore(line string) {
	for _, ago := range []time.Duration{9500, 8300} {
		h.journal = append(h.journal, host.JournalEntry{Time: at.Add(-ago * time.Millisecond), Program: "kubelet", Message: line})
	}
}

// said appends to the kubelet's journal.
func (h *fakeHost) said(lines ...string) {
	for _, line := range lines {
		h.journal = append(h.journal, host.JournalEntry{Time: at.Add(-2 * time.Second), Program: "kubelet", Message: line})
	}
}

// died is a kubelet that has exited, with its last message.
func (h *fakeHost) died(line string) {
	h.units[kubeletService] = host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code"}
	if line != "" {
		h.said(line)
	}
	h.journal = append(h.journal, host.JournalEntry{
		Time: at.Add(-time.Second), Program: "systemd", Message: "kubelet.service: Main process exited, code=exited, status=1/FAILURE",
	})
}

func (h *fakeHost) ReadFile(path string) ([]byte, error)       { return fs.ReadFile(h.files, path[1:]) }
func (h *fakeHost) ReadDir(path string) ([]fs.DirEntry, error) { return fs.ReadDir(h.files, path[1:]) }
func (h *fakeHost) Lstat(path string) (fs.FileInfo, error)     { return fs.Stat(h.files, path[1:]) }
func (h *fakeHost) ReadTail(path string, _ int64) ([]byte, error) {
	return fs.ReadFile(h.files, path[1:])
}

func (h *fakeHost) Unit(_ context.Context, name string) (host.UnitState, error) {
	if h.noInit {
		return host.UnitState{}, host.ErrNoSystemd
	}
	if h.noSystemd {
		return host.UnitState{}, errors.New("the bus does not answer")
	}
	return h.units[name], nil
}

func (h *fakeHost) Journal(_ context.Context, unit string, since time.Time, _ int) ([]host.JournalEntry, error) {
	var entries []host.JournalEntry
	for _, e := range h.journal {
		if unit == kubeletService && !e.Time.Before(since) {
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func (h *fakeHost) RuntimeInfo(context.Context, string) (host.RuntimeInfo, error) {
	if h.noRuntime {
		return host.RuntimeInfo{}, errors.New("no such socket")
	}
	return h.runtime, nil
}

func (h *fakeHost) ImagePresent(_ context.Context, _, image string) (bool, error) {
	return !h.absent[image], nil
}

func (h *fakeHost) ContainerStates(ctx context.Context, _, _ string) ([]host.ContainerState, error) {
	if h.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if h.noRuntime {
		return nil, errors.New("no such socket")
	}
	return h.states, nil
}

func (h *fakeHost) Swap() ([]string, error) { return h.swap, nil }
func (h *fakeHost) Addresses() ([]netip.Addr, error) {
	return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.11")}, nil
}

func (h *fakeHost) PortHolder(port int) (host.Process, bool) {
	p, held := h.held[port]
	return p, held
}

func (h *fakeHost) LookupHost(_ context.Context, name string) ([]netip.Addr, error) {
	if h.names[name] {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.99")}, nil
}

func (h *fakeHost) Space(path string) (host.Space, error) {
	if s, known := h.space[path]; known {
		return s, nil
	}
	return host.Space{Free: 9 << 30, Total: 10 << 30, FreeInodes: 1000, TotalInodes: 2000}, nil
}

func (h *fakeHost) Fetch(_ context.Context, p host.Probe) ([]byte, error) {
	_, rest, _ := strings.Cut(p.URL, "://")
	_, path, _ := strings.Cut(rest, "/")
	return []byte(h.bodies["/"+path]), h.answers["/"+path]
}

func (h *fakeHost) Date(context.Context, host.Probe) (time.Time, error) { return at.Add(h.apart), nil }
func (h *fakeHost) Now() time.Time                                      { return at }

func (h *fakeHost) target(waiting bool) Target {
	return Target{
		Socket: socket, Kubelet: "/var/lib/kubelet", Kubeconfigs: "/etc/kubernetes", Manifests: manifests,
		Since: at.Add(-10 * time.Second), Waiting: waiting,
	}
}

// names returns the causes that a look finds.
func names(t *testing.T, h *fakeHost, waiting bool) []string {
	t.Helper()
	var list []string
	for _, f := range Run(t.Context(), h, h.target(waiting)) {
		list = append(list, f.Cause)
	}
	return list
}
