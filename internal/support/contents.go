// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package support

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
)

type table struct{ bytes.Buffer }

func (t *table) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// fact writes a line with a value, or with the error.
func (t *table) fact(name string, value any, err error) {
	if err != nil {
		value = "cannot read it: " + err.Error()
	}
	t.line("%s: %v", name, value)
}

// diagnosis adds the output of `diagnose`, for people and for programs.
func (c *collection) diagnosis() {
	found, unseen := diagnose.Run(c.ctx, c.h, c.n.Target)
	var text table
	for _, f := range found {
		text.line("%s", f)
	}
	switch {
	case unseen != nil:
		text.line("%v", unseen)
	case len(found) == 0:
		text.line("no problems found")
	}
	c.add("diagnosis.txt", text.Bytes(), plain)
	data, err := json.MarshalIndent(found, "", "  ")
	if err == nil {
		c.add("diagnosis.json", data, plain)
	}
}

func (c *collection) facts() {
	var t table
	kernel, err := c.h.KernelRelease()
	t.fact("kernel", kernel, err)
	name, err := c.h.Hostname()
	t.fact("host", name, err)
	memory, err := c.h.MemoryBytes()
	t.fact("memory (MiB)", memory>>20, err)
	t.line("processors: %d", c.h.NumCPU())
	t.line("time: %s", c.now.UTC().Format(time.RFC3339Nano))
	swap, err := c.h.Swap()
	t.fact("swap", swap, err)
	t.line("slipway: %s", c.n.Version)
	kubelet, err := c.h.ProgramVersion(c.ctx, "kubelet")
	t.fact("kubelet", kubelet, err)
	info, err := c.h.RuntimeInfo(c.ctx, c.n.Socket)
	t.fact("runtime at "+c.n.Socket, fmt.Sprintf("%+v", info), err)
	c.add("host/facts.txt", t.Bytes(), plain)
	c.network()
	c.disks()
	for _, path := range []string{"/etc/os-release", "/etc/hosts", "/etc/resolv.conf", "/proc/meminfo", "/proc/loadavg", "/proc/self/mountinfo"} {
		c.file("host/"+filepath.Base(path), path, plain)
	}
}

func (c *collection) network() {
	var t table
	addresses, err := c.h.Addresses()
	t.fact("addresses", addresses, err)
	routes, err := c.h.Routes()
	t.fact("routes", len(routes), err)
	for _, r := range routes {
		t.line("  %s dev %s gateway %t", r.Destination, r.Interface, r.Gateway)
	}
	t.line("ports of Kubernetes, and the programs that listen on them:")
	for _, port := range []int{6443, 10250, 10248, 10249, 10256, 10257, 10259, 2379, 2380, 2381} {
		if p, found := c.h.PortHolder(port); found {
			t.line("  %d: %s (process %d)", port, p.Name, p.PID)
		}
	}
	c.add("host/network.txt", t.Bytes(), plain)
}

// disks adds the file systems of the directories a node writes to.
func (c *collection) disks() {
	var t table
	const root = "/"
	images, _ := c.h.ImageDir(c.ctx, c.n.Socket)
	for _, dir := range slices.Compact([]string{root, cmp.Or(images, root), "/etc/kubernetes", "/var/lib/etcd", "/var/lib/kubelet",
		"/var/lib/containerd", "/var/lib/containers", "/var/log", "/tmp", "/run"}) {
		if s, err := c.h.Space(dir); err == nil {
			t.line("%-20s %8d MiB of %8d MiB free, %d of %d inodes", dir, s.Free>>20, s.Total>>20, s.FreeInodes, s.TotalInodes)
		}
	}
	c.add("host/disks.txt", t.Bytes(), plain)
}

func (c *collection) units() {
	for _, name := range []string{"kubelet.service", "containerd.service", "crio.service", "cri-docker.service"} {
		state, err := c.h.Unit(c.ctx, name)
		if err == nil && state.LoadState == "not-found" {
			continue
		}
		var t table
		t.fact(name, fmt.Sprintf("%+v", state), err)
		c.add("units/"+name+".txt", t.Bytes(), plain)
		c.journal(name)
		for _, dir := range c.unitDirs() {
			c.file("units"+dir+"/"+name, filepath.Join(dir, name), unit)
			c.directory("units"+dir+"/"+name+".d", filepath.Join(dir, name+".d"), unit)
		}
	}
}

// unitDirs are systemd's, each by one name.
func (c *collection) unitDirs() []string {
	lib, err := c.h.Lstat("/lib")
	return slices.DeleteFunc(host.UnitDirs(), func(dir string) bool {
		return strings.HasPrefix(dir, "/lib/") && (err != nil || !lib.IsDir())
	})
}

func (c *collection) journal(unit string) {
	entries, err := c.h.Journal(c.ctx, unit, time.Time{}, journalLimit)
	var t table
	if err != nil {
		t.line("cannot read it: %v", err)
	}
	for _, e := range entries {
		t.line("%s %s: %s", e.Time.UTC().Format(time.RFC3339Nano), e.Program, e.Message)
	}
	c.add("units/"+unit+".log", t.Bytes(), plain)
}

// directory adds a directory's files, without subdirectories.
func (c *collection) directory(name, path string, f form) {
	entries, err := c.h.ReadDir(path)
	if err != nil {
		return // usually it doesn't exist
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			c.file(name+"/"+e.Name(), filepath.Join(path, e.Name()), f)
		}
	}
}

func (c *collection) configuration() {
	c.directory("kubernetes/manifests", c.n.Manifests, document)
	entries, _ := c.h.ReadDir(c.n.Kubernetes) // only nodes have any
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".conf") && e.Type().IsRegular() {
			c.file("kubernetes/"+e.Name(), filepath.Join(c.n.Kubernetes, e.Name()), document)
		}
	}
	for _, name := range []string{"config.yaml", "instance-config.yaml"} {
		c.file("kubelet/"+name, filepath.Join(c.n.Kubelet, name), document)
	}
	c.file("kubelet/kubeadm-flags.env", filepath.Join(c.n.Kubelet, "kubeadm-flags.env"), variables)
	c.file("kubelet/etc-default-kubelet", "/etc/default/kubelet", variables)
	c.file("kubelet/etc-sysconfig-kubelet", "/etc/sysconfig/kubelet", variables)
}

// certificates encodes certificates again, to leave out a key in the same file.
func (c *collection) certificates() {
	var list table
	for _, dir := range []string{c.n.PKI, filepath.Join(c.n.PKI, "etcd"), filepath.Join(c.n.Kubelet, "pki")} {
		entries, err := c.h.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			if info, err := c.h.Lstat(path); err == nil {
				list.line("%s %s %d bytes, %s", info.Mode(), path, info.Size(), info.ModTime().UTC().Format(time.RFC3339))
			}
			c.certificate(path)
		}
	}
	c.add("pki/files.txt", list.Bytes(), plain)
}

func (c *collection) certificate(path string) {
	if !strings.HasSuffix(path, ".crt") && !strings.HasSuffix(path, ".pem") {
		return
	}
	data, err := c.h.ReadFile(path)
	if err != nil {
		return
	}
	leaf, err := certs.FirstCert(data)
	if err != nil {
		c.add("pki"+path+".txt", []byte("no certificate: "+err.Error()), plain)
		return
	}
	var t table
	t.line("subject: %s\nissuer: %s\nserial: %s", leaf.Subject, leaf.Issuer, leaf.SerialNumber)
	t.line("valid from %s to %s", leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339))
	t.line("names: %v %v", leaf.DNSNames, leaf.IPAddresses)
	t.line("CA: %t, key: %s", leaf.IsCA, leaf.PublicKeyAlgorithm)
	t.Write(certs.EncodeCerts(leaf))
	c.add("pki"+path+".txt", t.Bytes(), plain)
}

// containers runs first: the IDs of containers look like keys in the other files.
func (c *collection) containers() {
	var t table
	states, err := c.h.ContainerStates(c.ctx, c.n.Socket, "")
	if err != nil {
		t.line("cannot list containers: %v", err)
	}
	pods, err := c.h.Sandboxes(c.ctx, c.n.Socket, "")
	if err != nil {
		t.line("cannot list sandboxes: %v", err)
	}
	for _, s := range states {
		c.known = append(c.known, s.ID)
	}
	for _, p := range pods {
		c.known = append(c.known, p.ID)
		t.line("sandbox %s %s/%s ready %t, created %s", p.ID, p.Namespace, p.Pod, p.Ready, p.Created.UTC().Format(time.RFC3339))
	}
	for _, s := range states {
		if !c.mayShow(s.Namespace) {
			s.Message = ""
		}
		t.line("container %s %s/%s %s: %s, restarts %d, exit code %d %s %s, created %s, image %s", s.ID, s.Namespace, s.Pod, s.Name,
			s.State, s.Restarts, s.ExitCode, s.Reason, s.Message, s.Created.UTC().Format(time.RFC3339), s.Image)
	}
	c.add("containers.txt", t.Bytes(), plain)
	taken := 0
	for _, s := range states {
		if s.LogPath == "" || !c.mayShow(s.Namespace) || taken == containerLimit {
			continue
		}
		c.file(fmt.Sprintf("logs/%03d_%s_%s_%s.log", taken, s.Namespace, s.Pod, s.Name), s.LogPath, plain)
		taken++
	}
}

// mayShow reports whether the bundle may hold messages of containers in a namespace.
func (c *collection) mayShow(namespace string) bool {
	return c.n.AllNamespaces || namespace == metav1.NamespaceSystem
}
