// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	rootless = clusterDocument + "featureGates: {RootlessControlPlane: true}\n"

	passwdBefore = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:999:1:daemon:/:/usr/sbin/nologin\n"
	groupBefore  = "root:x:0:\n+\nplugdev:x:998:someone" // NIS's line; no newline at the end
)

// Chown notes what it is asked: a test need not be root.
func (h *stubHost) Chown(path string, uid, gid int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.owned = append(h.owned, fmt.Sprintf("%s %d:%d", path, uid, gid))
	return h.fail["chown "+path]
}

func rootlessStage(t *testing.T) *stage {
	t.Helper()
	s := newStage(t, initDocument+rootless)
	s.put(t, passwdFile, passwdBefore)
	s.put(t, groupFile, groupBefore)
	return s
}

func TestRootlessAccounts(t *testing.T) {
	s := rootlessStage(t)
	s.play(t, certificates(), kubeconfigs(), localEtcd(), controlPlane())

	wantPasswd := passwdBefore + strings.Join([]string{
		"kubeadm-etcd:x:998:999::/nonexistent:/bin/false",
		"kubeadm-kas:x:997:997::/nonexistent:/bin/false",
		"kubeadm-kcm:x:996:996::/nonexistent:/bin/false",
		"kubeadm-ks:x:995:995::/nonexistent:/bin/false",
	}, "\n") + "\n"
	wantGroup := groupBefore + "\n" + strings.Join([]string{
		"kubeadm-etcd:x:999:kubeadm-etcd",
		"kubeadm-kas:x:997:kubeadm-kas",
		"kubeadm-kcm:x:996:kubeadm-kcm",
		"kubeadm-ks:x:995:kubeadm-ks",
		"kubeadm-sa-key-readers:x:994:kubeadm-kas,kubeadm-kcm",
	}, "\n") + "\n"
	if diff := cmp.Diff(wantPasswd, s.get(t, passwdFile)); diff != "" {
		t.Errorf("passwd (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantGroup, s.get(t, groupFile)); diff != "" {
		t.Errorf("group (-want +got):\n%s", diff)
	}
	if scheduler := s.get(t, "/etc/kubernetes/manifests/kube-scheduler.yaml"); !strings.Contains(scheduler, "runAsUser: 995") {
		t.Errorf("the scheduler does not run as its user:\n%s", scheduler)
	}

	// Numbers stay, and nothing is written again.
	before, jobs := stamps(t, s.root), len(s.host.jobs)
	s.play(t, certificates(), kubeconfigs(), localEtcd(), controlPlane())
	if diff := cmp.Diff(before, stamps(t, s.root)); diff != "" {
		t.Errorf("the second run changed files (-before +after):\n%s", diff)
	}
	if len(s.host.jobs) != jobs {
		t.Errorf("the second run did %v", s.host.jobs[jobs:])
	}
}

func TestRootlessOwnerships(t *testing.T) {
	s := rootlessStage(t)
	s.play(t, certificates(), kubeconfigs(), localEtcd())
	s.host.owned = nil
	s.put(t, "/var/lib/etcd/member/wal/0.wal", "x")
	s.put(t, "/var/lib/kubelet/config.yaml", "x") // of a phase that is not played
	s.play(t, controlPlane())
	slices.Sort(s.host.owned)
	const pki = "/etc/kubernetes/pki/"
	want := []string{
		"/etc/kubernetes/controller-manager.conf 996:996",
		pki + "apiserver-etcd-client.key 997:997",
		pki + "apiserver-kubelet-client.key 997:997",
		pki + "apiserver.key 997:997",
		pki + "ca.key 996:996",
		pki + "etcd/peer.key 998:999",
		pki + "etcd/server.key 998:999",
		pki + "front-proxy-client.key 997:997",
		pki + "sa.key 0:994",
		pki + "sa.pub 997:997",
		"/etc/kubernetes/scheduler.conf 995:995",
		"/var/lib/etcd 998:999",
		"/var/lib/etcd/member 998:999",
		"/var/lib/etcd/member/wal 998:999",
		"/var/lib/etcd/member/wal/0.wal 998:999",
	}
	if diff := cmp.Diff(want, slices.Compact(s.host.owned)); diff != "" {
		t.Errorf("owners (-want +got):\n%s", diff)
	}
	listed := listing(t, s.root)
	for _, want := range []string{pki + "sa.key -rw-r-----", pki + "ca.key -rw-------", pki + "apiserver.key -rw-------"} {
		if !slices.Contains(listed, want) {
			t.Errorf("no %s in\n%s", want, strings.Join(listed, "\n"))
		}
	}
}

// etcd removes files of its own while its folder is given to it.
func TestRootlessFolderThatChanges(t *testing.T) {
	const gone, kept = "/var/lib/etcd/member/wal/0.tmp", "/var/lib/etcd/member/wal/0.wal"
	s := rootlessStage(t)
	s.play(t, localEtcd())
	s.put(t, gone, "x")
	s.put(t, kept, "x")
	s.host.fail = map[string]error{"chown " + gone: fmt.Errorf("lstat: %w", fs.ErrNotExist)}
	if err := applyOwnerships(s.Env); err != nil {
		t.Error(err)
	}
	if !slices.Contains(s.host.owned, kept+" 998:999") {
		t.Errorf("gave away %v", s.host.owned)
	}
	s.host.fail = map[string]error{"chown " + kept: fs.ErrPermission}
	if err := applyOwnerships(s.Env); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("error %v", err)
	}
}

// An external CA has no key here, which nobody can be given.
func TestRootlessLeavesOutWhatIsMissing(t *testing.T) {
	s := rootlessStage(t)
	s.play(t, controlPlane())
	if len(s.host.owned) > 0 {
		t.Errorf("gave away %v", s.host.owned)
	}
}

func TestAccountsFaults(t *testing.T) {
	full := passwdBefore
	for id := minSystemID; id <= maxSystemID; id++ {
		full += fmt.Sprintf("u%d:x:%d:1::/:/bin/false\n", id, id)
	}
	for name, test := range map[string]struct{ passwd, want string }{
		"no number":  {"root:x:zero:0::/:/bin/sh\n", `/etc/passwd: the account "root" has no number in its third field; mend the file first`},
		"no place":   {full, `/etc/passwd: no number from 100 to 999 is free for the system account "kubeadm-etcd"`},
		"no account": {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := rootlessStage(t)
			s.put(t, passwdFile, test.passwd)
			if got := message(ensureAccounts(s.Env)); got != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoAccountsWithoutTheGate(t *testing.T) {
	s := newStage(t, initDocument+clusterDocument) // it has neither file
	if err := ensureAccounts(s.Env); err != nil {
		t.Error(err)
	}
	if err := applyOwnerships(s.Env); err != nil || len(s.host.owned) > 0 {
		t.Errorf("gave away %v, error %v", s.host.owned, err)
	}
}
