// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package benchmark

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/profile"
	"github.com/slipway-k8s/slipway/kubeletconfig"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/golden"
	"github.com/slipway-k8s/slipway/test/stage"
)

const (
	manifestsDir = "/etc/kubernetes/manifests/"
	apiServerPod = manifestsDir + "kube-apiserver.yaml"
	managerPod   = manifestsDir + "kube-controller-manager.yaml"
	schedulerPod = manifestsDir + "kube-scheduler.yaml"
	etcdPod      = manifestsDir + "etcd.yaml"
	kubeletFile  = "/var/lib/kubelet/config.yaml"
	kubeletUnit  = "/usr/lib/systemd/system/kubelet.service"
	adminConf    = "/etc/kubernetes/admin.conf"
	proxyFile    = "/var/lib/kubelet/pods/0123/volumes/kubernetes.io~configmap/kube-proxy/config.conf"
	anonymousFor = "/etc/kubernetes/hardening/authentication.yaml"
	caFile       = "/etc/kubernetes/pki/ca.crt"
	etcdData     = "/var/lib/etcd"
)

// owned is a host whose files belong to root, except for some.
type owned struct {
	host.FileReader
	owners map[string]uint32
}

func (o owned) Stat(path string) (fs.FileInfo, error) {
	info, err := o.FileReader.Stat(path)
	return ofOwner{info, o.owners[path]}, err
}

type ofOwner struct {
	fs.FileInfo
	uid uint32
}

func (o ofOwner) Sys() any { return &syscall.Stat_t{Uid: o.uid, Gid: o.uid} }

// machine is a control plane with its files as init leaves them.
type machine struct {
	*stage.Host
	node   *config.Node
	owners map[string]uint32
}

func controlPlane(t *testing.T, flags config.InitFlags) machine {
	t.Helper()
	n := fixture.NodeWith(t, fixture.InitDocument+fixture.ClusterDocument, flags)
	m := machine{stage.New(t), n, map[string]uint32{}}
	m.FileReader = owned{m.FileReader, m.owners}
	for path, pod := range map[string]*corev1.Pod{
		apiServerPod: manifests.APIServer(n, manifests.HostView{}), managerPod: manifests.ControllerManager(n, manifests.HostView{}),
		schedulerPod: manifests.Scheduler(n, manifests.HostView{}), etcdPod: manifests.Etcd(n, manifests.HostView{}, nil),
	} {
		data, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		m.put(t, path, string(data))
	}
	settings, err := n.KubeletYAML()
	if err != nil {
		t.Fatal(err)
	}
	m.put(t, kubeletFile, string(settings))
	for _, f := range n.ProfileFiles() {
		m.put(t, f.Path, string(f.Data))
	}
	for _, path := range []string{adminConf, "/etc/kubernetes/scheduler.conf", "/etc/kubernetes/controller-manager.conf", "/etc/kubernetes/kubelet.conf", caFile, "/etc/kubernetes/pki/etcd/ca.key"} {
		m.put(t, path, "x\n")
	}
	m.put(t, kubeletUnit, string(kubeletconfig.DropIn("/usr/bin/kubelet")))
	m.put(t, proxyFile, "metricsBindAddress: \"\"\n")
	if err := m.EnsureDir(etcdData, 0o700); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m machine) put(t *testing.T, path, text string) {
	t.Helper()
	err := m.EnsureDir(filepath.Dir(path), 0o755)
	if err == nil {
		_, err = m.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// results returns the items by number.
func (m machine) results() map[string]Result {
	all := map[string]Result{}
	for _, r := range Run(m, &m.node.Machine) {
		all[r.ID] = r
	}
	return all
}

func hardened(t *testing.T) machine {
	t.Helper()
	return controlPlane(t, config.InitFlags{Given: []string{"profile"}, Profile: profile.CIS})
}

func TestItems(t *testing.T) {
	for name, m := range map[string]machine{"plain": controlPlane(t, config.InitFlags{}), "hardened": hardened(t)} {
		var b strings.Builder
		for _, r := range Run(m, &m.node.Machine) {
			fmt.Fprintf(&b, "%s\t%s\t%s\t%s\t%s\n", r.ID, r.Status, r.Subject, r.Found, r.Want)
		}
		golden.Check(t, "testdata/"+name+".tsv", b.String())
	}
}

// TestEachItemFails: each item that passes has an edit that it finds, and others don't.
func TestEachItemFails(t *testing.T) {
	edits, before := failing(), hardened(t).results()
	for id, r := range before {
		if r.Status == Pass && len(edits[id]) == 0 {
			t.Errorf("%s passes, and nothing makes it fail", id)
		}
	}
	for id, list := range edits {
		for i, e := range list {
			t.Run(fmt.Sprint(id, "/", i), func(t *testing.T) {
				if before[id].Status != Pass {
					t.Fatalf("before the edit: %+v", before[id])
				}
				m := hardened(t)
				e.apply(t, m)
				if after := m.results()[id]; after.Status != Fail {
					t.Errorf("after the edit: %+v", after)
				}
			})
		}
	}
}

// TestFlagsOverFields: a flag of the kubelet counts more than its field, and one that only systemd knows makes the item unknown.
func TestFlagsOverFields(t *testing.T) {
	for flags, want := range map[string]Status{"--read-only-port=10255": Fail, "--read_only_port 10255": Fail, "--read-only-port=0": Pass, "--read-only-port=$PORT": Unknown, "--config=/other": Unknown} {
		m := hardened(t)
		m.put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS="+flags+"\n")
		if got := m.results()["4.2.4"]; got.Status != want {
			t.Errorf("%s: %+v", flags, got)
		}
	}
}

// TestNeverPassesUnseen: without its file, an item doesn't pass, nor if another program runs in its static Pod.
func TestNeverPassesUnseen(t *testing.T) {
	files := map[string]string{apiServerPod: "1.2.", managerPod: "1.3.", schedulerPod: "1.4.", etcdPod: "2.", kubeletFile: "4.2.", proxyFile: "4.3.", adminConf: "1.1.13", kubeletUnit: "4.1.1", etcdData: "1.1.11"}
	for path, items := range files {
		for _, removed := range []bool{false, true} {
			m := hardened(t)
			switch {
			case !removed:
				m.FileReader, m.Fail["ReadFile "+path] = broken{m.FileReader, path}, os.ErrPermission
			default:
				if err := os.Remove(m.Root + path); err != nil {
					t.Fatal(err)
				}
			}
			results := m.results()
			if first := items + "1"; strings.HasSuffix(items, ".") && results[first].ID != first {
				t.Errorf("without %s, there is no item %s", path, first)
			}
			for id, r := range results {
				if (id == items || strings.HasSuffix(items, ".") && strings.HasPrefix(id, items)) && r.Status != Unknown {
					t.Errorf("without %s: %+v", path, r)
				}
			}
		}
	}
	m := hardened(t)
	edit{path: apiServerPod, old: "- kube-apiserver\n", new: "- sh\n    - -c\n    - exec kube-apiserver\n"}.apply(t, m)
	for id, r := range m.results() {
		if strings.HasPrefix(id, "1.2.") && r.Status != Unknown {
			t.Errorf("a shell: %+v", r)
		}
	}
}

// TestUnit: the files that systemd reads count, wherever they are, and no hidden ones.
func TestUnit(t *testing.T) {
	const etc, run, local, usr = "/etc/systemd/system/kubelet.service", "/run/systemd/system/kubelet.service", "/usr/local/lib/systemd/system/kubelet.service", "/usr/lib/systemd/system/kubelet.service"
	for name, tt := range map[string]struct {
		private, open []string
		masked        string
		want          Status
	}{
		"prepared":                   {private: []string{local, kubeletconfig.DropInPath}, want: Pass},
		"prepared long ago":          {private: []string{local}, open: []string{kubeletconfig.DropInPath}, want: Fail},
		"a package beside it":        {private: []string{usr}, open: []string{kubeletconfig.DropInPath}, want: Fail},
		"the package's, hidden":      {private: []string{etc, kubeletconfig.DropInPath}, open: []string{usr, local}, want: Pass},
		"an operator's drop-in":      {private: []string{usr}, open: []string{run + ".d/90-own.conf"}, want: Fail},
		"a hidden drop-in":           {private: []string{usr, etc + ".d/10-kubeadm.conf"}, open: []string{usr + ".d/10-kubeadm.conf"}, want: Pass},
		"a masked drop-in":           {private: []string{usr}, open: []string{usr + ".d/10-kubeadm.conf"}, masked: etc + ".d/10-kubeadm.conf", want: Pass},
		"a file that is no drop-in":  {private: []string{usr}, open: []string{usr + ".d/10-kubeadm.conf.old"}, want: Pass},
		"a drop-in without the unit": {private: []string{kubeletconfig.DropInPath}, want: Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			m := hardened(t)
			if err := os.Remove(m.Root + kubeletUnit); err != nil {
				t.Fatal(err)
			}
			for _, path := range append(tt.private, tt.open...) {
				m.put(t, path, "x\n")
			}
			for _, path := range tt.open {
				edit{path: path, mode: 0o644}.apply(t, m)
			}
			if tt.masked != "" {
				m.put(t, tt.masked, "x\n")
				if err := errors.Join(os.Remove(m.Root+tt.masked), os.Symlink("/dev/null", m.Root+tt.masked)); err != nil {
					t.Fatal(err)
				}
			}
			if got := m.results()["4.1.1"]; got.Status != tt.want {
				t.Errorf("%+v", got)
			}
		})
	}
}

// broken is a host with a file that can't be described.
type broken struct {
	host.FileReader
	path string
}

func (b broken) Stat(path string) (fs.FileInfo, error) {
	if path == b.path {
		return nil, os.ErrPermission
	}
	return b.FileReader.Stat(path)
}

// TestWorker has the kubelet's items alone, even with a copy of admin.conf. With the CA's key, it's a control plane whose items are
// unknown.
func TestWorker(t *testing.T) {
	m := hardened(t)
	etcd, err := m.ReadFile(etcdPod)
	if err := errors.Join(err, os.RemoveAll(m.Root+manifestsDir)); err != nil {
		t.Fatal(err)
	}
	m.put(t, etcdPod, string(etcd))
	for id := range m.results() {
		if !strings.HasPrefix(id, "4.") {
			t.Errorf("a worker has item %s", id)
		}
	}
	m.put(t, "/etc/kubernetes/pki/ca.key", "x\n")
	if got := m.results()["1.2.2"]; got.Status != Unknown {
		t.Errorf("a control plane without static Pods: %+v", got)
	}
}

// TestLinkedCertificates: an item looks through a link to a directory, but not in circles.
func TestLinkedCertificates(t *testing.T) {
	const elsewhere, link = "/srv/pki", "/etc/kubernetes/pki/linked"
	m := hardened(t)
	m.put(t, elsewhere+"/extra.key", "x\n")
	edit{path: link, link: "../../../srv/pki"}.apply(t, m)
	for _, tt := range []struct {
		name string
		edit edit
		want Status
	}{
		{"root's", edit{path: link + "/extra.key", mode: 0o600}, Pass},
		{"somebody's", edit{path: link + "/extra.key", owner: 7}, Fail},
		{"a dangling link", edit{path: elsewhere + "/gone", link: "nowhere"}, Fail},
		{"a link back", edit{path: elsewhere + "/back", link: "../../etc/kubernetes/pki"}, Unknown},
	} {
		tt.edit.apply(t, m)
		if got := m.results()["1.1.19"]; got.Status != tt.want {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

// TestRootless: files of the components' own users are theirs, and etcd's data passes only there.
func TestRootless(t *testing.T) {
	m := hardened(t)
	if got := m.results()["1.1.12"].Status; got != Fail {
		t.Errorf("etcd's data belongs to root, and the item says %s", got)
	}
	m.owners[etcdData], m.owners[caFile], m.owners["/etc/kubernetes/scheduler.conf"] = 990, 990, 991
	for path, user := range map[string]string{etcdPod: "990", schedulerPod: "991"} {
		edit{path: path, old: "  securityContext:\n", new: "  securityContext:\n    runAsUser: " + user + "\n    runAsGroup: " + user + "\n"}.apply(t, m)
	}
	for _, id := range []string{"1.1.12", "1.1.16", "1.1.19"} {
		if got := m.results()[id]; got.Status != Pass {
			t.Errorf("%+v", got)
		}
	}
}

func TestOrder(t *testing.T) {
	ids := []string{"4.2.10", "1.2.9", "1.2.10", "2.1", "4.2.9"}
	slices.SortFunc(ids, compareIDs)
	if got := strings.Join(ids, " "); got != "1.2.9 1.2.10 2.1 4.2.9 4.2.10" {
		t.Error(got)
	}
}
