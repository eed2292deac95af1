// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/stage"
)

// at is the fake host's time.
var at = time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC)

// fakeHost is a node's host. A healthy one has no problems.
type fakeHost struct {
	*stage.Host
	t        *testing.T
	absent   map[string]bool // images
	names    map[string]bool // names that don't resolve
	answers  map[string]error
	bodies   map[string]string
	apart    time.Duration // of the API server's clock
	serving  string        // the kubelet's serving certificate of the cluster
	clientCA string        // of the kubelet's clients
	probe    string        // the liveness probes of Pods added from then on
	pki      string        // where Pods added from then on have this host's /pki; /pki if empty
	members  []etcd.Health
}

const (
	socket      = "unix:///run/containerd/containerd.sock"
	manifestDir = "/etc/kubernetes/manifests"
)

func healthy(t *testing.T) *fakeHost {
	t.Helper()
	h := &fakeHost{Host: stage.New(t), t: t, absent: map[string]bool{}, names: map[string]bool{}, answers: map[string]error{}, bodies: map[string]string{}}
	h.Has.Units = map[string]host.UnitState{
		kubeletService:       {LoadState: "loaded", ActiveState: "active", SubState: "running", ActiveSince: at.Add(-time.Minute), MainPID: 7},
		"containerd.service": {LoadState: "loaded", ActiveState: "active", SubState: "running"},
	}
	h.Has.Space["/"] = host.Space{Free: 9 << 30, Total: 10 << 30, FreeInodes: 1000, TotalInodes: 2000}
	h.Has.Time = at
	h.On.ImagePresent, h.On.LookupHost, h.On.Fetch, h.On.Date = h.imagePresent, h.lookupHost, h.fetch, h.date
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
	h.t.Helper()
	fixture.Put(h.t, h.Root, path, text)
	if err := os.Chtimes(filepath.Join(h.Root, path), time.Time{}, at.Add(-40*time.Second)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fakeHost) remove(path string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.Root, path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *fakeHost) noRuntime() {
	h.Fail["RuntimeInfo"] = errors.New("no such socket")
	h.Fail["ContainerStates"] = h.Fail["RuntimeInfo"]
}

func (h *fakeHost) pod(name string, args ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata: {name: %s, namespace: kube-system}\nspec:\n  containers:\n  - name: %s\n", name, name)
	fmt.Fprintf(&b, "    image: registry.k8s.io/%s:v1\n    livenessProbe: {httpGet: %s}\n    command:\n    - %s\n", name,
		cmp.Or(h.probe, "{host: 127.0.0.1, port: 1, path: /livez}"), name)
	for _, a := range args {
		fmt.Fprintf(&b, "    - %s\n", a)
	}
	b.WriteString("    volumeMounts:\n")
	volumes := "  volumes:\n"
	for i, m := range [][2]string{{"/pki", cmp.Or(h.pki, "/pki")}, {"/etc/etcd", "/etc/etcd"}, {"/var/lib/etcd", "/var/lib/etcd"}} {
		fmt.Fprintf(&b, "    - {name: v%d, mountPath: %s}\n", i, m[1])
		volumes += fmt.Sprintf("  - {name: v%d, hostPath: {path: %s}}\n", i, m[0])
	}
	h.put(manifestDir+"/"+name+".yaml", b.String()+volumes)
}

// container adds a container with its log to a static Pod, newer than the ones before.
func (h *fakeHost) container(name, state string, created time.Time, lines ...string) {
	c := host.ContainerState{
		ID: fmt.Sprintf("%s-%d", name, len(h.Has.Containers)), Name: name, Pod: name + "-cp-1", State: state, Created: created,
		LogPath: fmt.Sprintf("/var/log/pods/%s/%d.log", name, len(h.Has.Containers)),
	}
	for _, old := range h.Has.Containers {
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
	h.Has.Containers = append([]host.ContainerState{c}, h.Has.Containers...)
}

// crashed replaces a static Pod's container with an exited one.
func (h *fakeHost) crashed(name string, lines ...string) {
	var kept []host.ContainerState
	for _, c := range h.Has.Containers {
		if c.Name != name {
			kept = append(kept, c)
		}
	}
	h.Has.Containers = kept
	h.container(name, "exited", at.Add(-3*time.Second), lines...)
}

// insisted logs a line twice, two seconds apart.
func (h *fakeHost) insisted(line string) {
	h.Has.Journal = append(h.Has.Journal, host.JournalEntry{Time: at.Add(-4 * time.Second), Program: "kubelet", Message: line})
	h.said(line)
}

// saidBefore logs a line twice some time ago, and not since.
func (h *fakeHost) saidBefore(line string) {
	for _, ago := range []time.Duration{9500, 8300} {
		h.Has.Journal = append(h.Has.Journal, host.JournalEntry{Time: at.Add(-ago * time.Millisecond), Program: "kubelet", Message: line})
	}
}

// said appends to the kubelet's journal.
func (h *fakeHost) said(lines ...string) {
	for _, line := range lines {
		h.Has.Journal = append(h.Has.Journal, host.JournalEntry{Time: at.Add(-2 * time.Second), Program: "kubelet", Message: line})
	}
}

// died makes the kubelet exit with a last message.
func (h *fakeHost) died(line string) {
	h.Has.Units[kubeletService] = host.UnitState{LoadState: "loaded", ActiveState: "activating", SubState: "auto-restart", Result: "exit-code"}
	if line != "" {
		h.said(line)
	}
	h.Has.Journal = append(h.Has.Journal, host.JournalEntry{
		Time: at.Add(-time.Second), Program: "systemd", Message: "kubelet.service: Main process exited, code=exited, status=1/FAILURE",
	})
}

func (h *fakeHost) imagePresent(_ context.Context, _, image string) (bool, error) {
	return !h.absent[image], nil
}

func (h *fakeHost) lookupHost(_ context.Context, name string) ([]netip.Addr, error) {
	if h.names[name] {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("192.0.2.99")}, nil
}

func (h *fakeHost) fetch(_ context.Context, p host.Probe) ([]byte, error) {
	_, rest, _ := strings.Cut(p.URL, "://")
	_, path, _ := strings.Cut(rest, "/")
	return []byte(h.bodies["/"+path]), h.answers["/"+path]
}

func (h *fakeHost) date(context.Context, host.Probe) (time.Time, error) { return at.Add(h.apart), nil }

func (h *fakeHost) target(waiting bool) Target {
	return Target{
		Socket: socket, Kubelet: "/var/lib/kubelet", Kubeconfigs: "/etc/kubernetes", Manifests: manifestDir,
		Since: at.Add(-10 * time.Second), Waiting: waiting, Serving: h.serving, ClientCA: h.clientCA,
		Etcd: func(context.Context) ([]etcd.Health, error) { return h.members, nil },
	}
}

// run is a look that could look everywhere.
func run(t *testing.T, h *fakeHost, waiting bool) []fault.Finding {
	t.Helper()
	found, err := Run(t.Context(), h, h.target(waiting))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// names returns the causes found in a look.
func names(t *testing.T, h *fakeHost, waiting bool) []string {
	t.Helper()
	var list []string
	for _, f := range run(t, h, waiting) {
		list = append(list, f.Name)
	}
	return list
}

func get(h *fakeHost, path string) string {
	h.t.Helper()
	return fixture.Get(h.t, h.Root, path)
}
