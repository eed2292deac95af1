// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"slices"
	"testing"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

func workerNode() *config.Node {
	return &config.Node{
		Name: "worker-1", Join: &config.Join{Server: "https://192.0.2.1:6443"},
		Cluster: config.ClusterConfiguration{KubernetesVersion: "v1.37.2", Networking: config.Networking{ServiceSubnet: "10.96.0.0/12"}},
		Machine: config.Machine{Paths: paths()},
	}
}

// TestJoinWorkerNames: existing scripts use these names with --ignore-preflight-errors.
func TestJoinWorkerNames(t *testing.T) {
	var names []string
	for _, c := range JoinWorker(workerNode(), []Leftover{{Path: "/etc/kubernetes/kubelet.conf"}, {Path: "/etc/kubernetes/pki/ca.crt"}}) {
		names = append(names, c.Name)
	}
	for _, want := range []string{
		"IsPrivilegedUser", "CRI", "ContainerRuntimeVersion", "SystemVerification", "Hostname", "KubeletVersion", "Service-kubelet", "Swap",
		"Firewalld", "HTTPProxy", "HTTPProxyCIDR", "Port-10250", "FileContent--proc-sys-net-ipv4-ip_forward", "DirAvailable--etc-kubernetes-manifests",
		"FileAvailable--etc-kubernetes-kubelet.conf", "FileAvailable--etc-kubernetes-pki-ca.crt",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("no check %s among %v", want, names)
		}
	}
	for _, not := range []string{"NumCPU", "Mem", "Port-6443", "ImagePull"} {
		if slices.Contains(names, not) {
			t.Errorf("check %s is for control planes", not)
		}
	}
}

func TestJoinWorker(t *testing.T) {
	const kubeletConf, manifest = "/etc/kubernetes/kubelet.conf", "/etc/kubernetes/manifests/a.yaml"
	tests := []struct {
		name    string
		make    func(h *fakeHost)
		foreign error
		want    []string
	}{
		{name: "fit"},
		{name: "joined to another cluster", make: func(h *fakeHost) { h.put(kubeletConf, "") }, foreign: errors.New("it is of another cluster"),
			want: []string{"[ERROR FileAvailable--etc-kubernetes-kubelet.conf] | /etc/kubernetes/kubelet.conf | another cluster | `slipway reset`"}},
		{name: "joined to this cluster", make: func(h *fakeHost) {
			h.put(kubeletConf, "")
			h.put(manifest, "")
			h.Has.Held[10250] = host.Process{PID: 7, Name: "kubelet"}
			h.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", MainPID: 7}
		}, want: []string{"[NOTE FileAvailable--etc-kubernetes-kubelet.conf] | /etc/kubernetes/kubelet.conf", "[NOTE Port-10250] | kubelet | process 7 | port 10250"}},
		{name: "unreadable", make: func(h *fakeHost) { h.unreadable(kubeletConf) },
			want: []string{"[ERROR FileAvailable--etc-kubernetes-kubelet.conf] | /etc/kubernetes/kubelet.conf | root"}},
		{name: "a kubelet that this node did not start", make: func(h *fakeHost) {
			h.Has.Held[10250] = host.Process{PID: 7, Name: "kubelet"}
			h.Has.Units["kubelet.service"] = host.UnitState{LoadState: "loaded", ActiveState: "active", UnitFileState: "enabled", MainPID: 7}
		}, want: []string{"[ERROR Port-10250] | port 10250 | kubelet | process 7 | `slipway reset`"}},
		{name: "static Pods", make: func(h *fakeHost) { h.put(manifest, "") },
			want: []string{"[ERROR DirAvailable--etc-kubernetes-manifests] | /etc/kubernetes/manifests | empty | `slipway reset`"}},
		{name: "a control plane", make: func(h *fakeHost) { h.put("/etc/kubernetes/manifests/kube-apiserver.yaml", "") },
			want: []string{"[ERROR DirAvailable--etc-kubernetes-manifests] | /etc/kubernetes/manifests/kube-apiserver.yaml | `slipway reset`"}},
		{name: "a proxy", make: func(h *fakeHost) {
			h.On.ProxyFor = func(url string) (string, error) {
				if url == "https://192.0.2.1:6443" {
					return "http://proxy", nil
				}
				return "", nil
			}
		}, want: []string{"[WARNING HTTPProxy] | 192.0.2.1:6443 | http://proxy | 192.0.2.1 to NO_PROXY"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := healthy(t)
			h.Has.Names["worker-1"] = "192.0.2.21"
			if tt.make != nil {
				tt.make(h)
			}
			leftovers := []Leftover{{Path: kubeletConf, Foreign: func([]byte) error { return tt.foreign }}}
			report := Run(t.Context(), JoinWorker(workerNode(), leftovers), h, nil)
			expect(t, slices.Concat(report[fault.Note], report[fault.Warning], report[fault.Error]), tt.want...)
		})
	}
}

func joiningControlPlane() *config.Node {
	n := controlPlaneNode()
	n.Join = &config.Join{Server: "https://192.0.2.1:6443"}
	return n
}

// TestJoinControlPlaneNames: existing scripts use these names with --ignore-preflight-errors.
func TestJoinControlPlaneNames(t *testing.T) {
	leftovers := []Leftover{{Path: "/etc/kubernetes/kubelet.conf"}}
	all := names(JoinControlPlane(joiningControlPlane(), leftovers))
	for _, c := range JoinWorker(joiningControlPlane(), leftovers) {
		if !slices.Contains(all, c.Name) && c.Name != "DirAvailable--etc-kubernetes-manifests" {
			t.Errorf("a worker's check %s is missing", c.Name)
		}
	}
	for _, want := range []string{
		"NumCPU", "Mem", "KubernetesVersion", "Port-6443", "Port-10259", "Port-10257", "Port-2379", "Port-2380",
		"DirAvailable--var-lib-etcd", "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml",
		"FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml", "FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml",
		"FileAvailable--etc-kubernetes-manifests-etcd.yaml",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("no check %s among %v", want, all)
		}
	}
	external := joiningControlPlane()
	external.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{}}
	for _, name := range names(JoinControlPlane(external, leftovers)) {
		if slices.Contains([]string{"Port-2379", "Port-2380", "EtcdImageTag", "DirAvailable--var-lib-etcd", "FileAvailable--etc-kubernetes-manifests-etcd.yaml"}, name) {
			t.Errorf("check %s, although etcd is external", name)
		}
	}
}

func TestJoinControlPlane(t *testing.T) {
	const ca, manifests = "/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/manifests/"
	tests := []struct {
		name    string
		make    func(h *fakeHost)
		foreign error
		want    []string
	}{
		{name: "fit"},
		{name: "cut off before the kubelet's start", make: func(h *fakeHost) {
			h.put(ca, "")
			h.put(manifests+"etcd.yaml", manifest(t, "etcd"))
			h.put("/var/lib/etcd/member/wal", "")
			h.Has.Held[2379] = host.Process{PID: 5, Name: "etcd"}
		}, want: []string{"[NOTE FileAvailable--etc-kubernetes-pki-ca.crt] | /etc/kubernetes/pki/ca.crt", "[NOTE FileAvailable--etc-kubernetes-manifests-etcd.yaml] | /etc/kubernetes/manifests/etcd.yaml",
			"[NOTE DirAvailable--var-lib-etcd] | /var/lib/etcd", "[NOTE Port-2379] | etcd | process 5 | port 2379"}},
		{name: "cut off while its etcd ended", make: func(h *fakeHost) {
			h.put("/var/lib/kubelet/slipway-join-unfinished", "")
			h.put("/var/lib/etcd/member/wal", "")
			h.Has.Held[2379] = host.Process{PID: 5, Name: "etcd"}
		}, want: []string{"[NOTE DirAvailable--var-lib-etcd] | /var/lib/etcd", "[NOTE Port-2379] | etcd | process 5 | port 2379"}},
		{name: "what is left of another cluster", make: func(h *fakeHost) {
			h.put(manifests+"kube-scheduler.yaml", manifest(t, "kube-scheduler"))
		}, want: []string{"[ERROR FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml] | /etc/kubernetes/manifests/kube-scheduler.yaml | `slipway reset`"}},
		{name: "a foreign file", make: func(h *fakeHost) {
			h.put(ca, "")
			h.put(manifests+"kube-scheduler.yaml", "a: b")
		}, want: []string{"[NOTE FileAvailable--etc-kubernetes-pki-ca.crt] | /etc/kubernetes/pki/ca.crt",
			"[ERROR FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml] | /etc/kubernetes/manifests/kube-scheduler.yaml | kube-scheduler"}},
		{name: "data of a former etcd, set aside", make: func(h *fakeHost) { h.put("/var/lib/etcd/member.before-recover-2026-02-03-04-05-06/wal", "") }},
		{name: "foreign data of etcd", make: func(h *fakeHost) { h.put("/var/lib/etcd/member/wal", "") },
			want: []string{"[ERROR DirAvailable--var-lib-etcd] | /var/lib/etcd | empty | etcd | `slipway reset` | etcd.local.dataDir"}},
		{name: "small", make: func(h *fakeHost) { h.Has.CPUs = 1 },
			want: []string{"[ERROR NumCPU] | 1 CPU | 2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := healthy(t)
			if tt.make != nil {
				tt.make(h)
			}
			leftovers := []Leftover{{Path: ca, Foreign: func([]byte) error { return tt.foreign }}}
			report := Run(t.Context(), JoinControlPlane(joiningControlPlane(), leftovers), h, nil)
			got := texts(slices.Concat(report[fault.Note], report[fault.Warning], report[fault.Error]))
			slices.Sort(got)
			slices.Sort(tt.want)
			fact.List(t, got, tt.want...)
		})
	}
}
