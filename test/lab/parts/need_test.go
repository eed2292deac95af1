// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func testBuilder(t *testing.T) *Builder {
	t.Helper()
	b, err := New(Options{Components: filepath.Join("..", "components"), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// names lists the programs in build order, with the release of those differing between releases.
func names(picks []pick) string {
	var list []string
	for _, p := range picks {
		name := p.program
		if found, _ := programNamed(p.program); found.ofRelease() {
			name += "@" + p.release
		}
		list = append(list, name)
	}
	return strings.Join(list, " ")
}

const (
	plane137 = "kube-apiserver@1.37 kube-controller-manager@1.37 kube-scheduler@1.37 kube-proxy@1.37 etcd@1.37 etcdctl@1.37 coredns@1.37"
	plane136 = " kube-apiserver@1.36 kube-controller-manager@1.36 kube-scheduler@1.36 kube-proxy@1.36 etcd@1.36 etcdctl@1.36 coredns@1.36"
	plane135 = " kube-apiserver@1.35 kube-controller-manager@1.35 kube-scheduler@1.35 kube-proxy@1.35 etcd@1.35 etcdctl@1.35 coredns@1.35"
	plugins  = "bridge loopback ptp host-local portmap"
)

func TestContents(t *testing.T) {
	b := testBuilder(t)
	version := func(minor string) string {
		v, err := b.VersionsOf(minor)
		if err != nil {
			t.Fatal(err)
		}
		return " kube-apiserver:" + v.Kubernetes + " kube-controller-manager:" + v.Kubernetes + " kube-scheduler:" + v.Kubernetes + " kube-proxy:" +
			v.Kubernetes + " etcd:" + v.Etcd[1:] + "-0 coredns:" + v.CoreDNS
	}
	images := "pause:3.10.2 probe:1" + version("")
	for _, tt := range []struct {
		name        string
		need        Need
		debian      string
		first, then string
		images      []string
	}{
		{
			name: "a bare machine", need: Need{Bare: true, With: []string{Flannel}}, debian: "debian-bare",
		},
		{
			name: "the node of `make cluster`", debian: "debian-node",
			first:  plane137 + " containerd containerd-shim-runc-v2 ctr pause probe",
			then:   "kubelet@1.37 kubectl@1.37 " + plugins,
			images: []string{images},
		},
		{
			name: "one with kubeadm", need: Need{Kubernetes: "1.37", With: []string{Kubeadm}}, debian: "debian-node",
			first:  plane137 + " containerd containerd-shim-runc-v2 ctr pause probe",
			then:   "kubelet@1.37 kubectl@1.37 kubeadm@1.37 " + plugins,
			images: []string{images},
		},
		{
			name: "one with flannel", need: Need{With: []string{Flannel}}, debian: "debian-node",
			first:  plane137 + " containerd containerd-shim-runc-v2 ctr flanneld install-conf flannel pause probe",
			then:   "kubelet@1.37 kubectl@1.37 " + plugins,
			images: []string{images, "flannel:v0.28.10 flannel-cni-plugin:v1.9.1-flannel3"},
		},
		{
			name: "an older one, to be upgraded", need: Need{Kubernetes: "1.36", With: []string{Kubeadm}}, debian: "debian-node",
			first:  plane137 + " containerd containerd-shim-runc-v2 ctr pause probe" + plane136,
			then:   plugins + " kubelet@1.36 kubectl@1.36 kubeadm@1.36",
			images: []string{images, version("1.36")[1:]},
		},
		{
			name: "one to be upgraded twice", need: Need{Kubernetes: "1.35", With: []string{Flannel}}, debian: "debian-node",
			first:  plane137 + " containerd containerd-shim-runc-v2 ctr flanneld install-conf flannel pause probe" + plane136 + plane135,
			then:   plugins + " kubelet@1.35 kubectl@1.35",
			images: []string{images, version("1.36")[1:], version("1.35")[1:], "flannel:v0.28.10 flannel-cni-plugin:v1.9.1-flannel3"},
		},
	} {
		got, err := b.contents(tt.need)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		var groups []string
		for _, g := range got.images {
			var list []string
			for _, i := range g.recipes {
				list = append(list, filepath.Base(i.name))
			}
			groups = append(groups, strings.Join(list, " "))
		}
		if got.debian.kind != tt.debian || names(got.first) != tt.first || names(got.then) != tt.then || !slices.Equal(groups, tt.images) {
			t.Errorf("%s consists of\n%s\n%s\n%s\n%q, want\n%s\n%s\n%s\n%q", tt.name, got.debian.kind, names(got.first), names(got.then), groups,
				tt.debian, tt.first, tt.then, tt.images)
		}
	}
	for _, n := range []Need{{Kubernetes: "1.2"}, {With: []string{"crictl"}}} {
		if c, err := b.contents(n); err == nil {
			t.Errorf("%v is made of %v", n, c)
		}
	}
}

// Programs of the same component are built together. An import left out of one isn't left out of others.
func TestBatches(t *testing.T) {
	b := testBuilder(t)
	newest, older := b.releases[0], b.releases[1]
	picks := inOrder(append(newest.picks("kubelet", "etcd", "kubectl", "etcdctl", "flanneld", "install-conf", "flannel"), older.picks("kubectl", "etcdctl")...))
	var got []string
	for _, batch := range b.batches(picks) {
		got = append(got, filepath.Base(batch.dir)+": "+names(batch.picks))
	}
	want := []string{"kubernetes: kubelet@1.37 kubectl@1.37", "etcd: etcd@1.37 etcdctl@1.37", "flannel: flanneld", "flannel: install-conf", "flannel-cni: flannel",
		"kubernetes-1.36: kubectl@1.36", "etcd-3.6: etcdctl@1.36"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBuilt(t *testing.T) {
	for name, want := range map[string]string{"etcd": "server", "etcdctl": "etcdctl", "kubelet": "kubelet", "flanneld": "flannel", "install-conf": "install_conf",
		"pause": "pause", "ctr": "ctr"} {
		p, err := programNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.built(); got != want {
			t.Errorf("%s is built as %s, want %s", name, got, want)
		}
	}
}

func TestBundlePicks(t *testing.T) {
	const want = "containerd containerd-shim-runc-v2 ctr crictl bridge loopback ptp host-local portmap flanneld install-conf flannel pause probe " +
		"kube-apiserver@1.36 kubelet@1.36 kube-controller-manager@1.36 kube-scheduler@1.36 kube-proxy@1.36 kubectl@1.36 etcd@1.36 etcdctl@1.36 coredns@1.36"
	if got := names(testBuilder(t).releases[1].bundlePicks()); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
