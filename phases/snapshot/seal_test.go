// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const sealedName = "etcd-cp-1-20261127T120000Z.tar.age"

// keyPair is a key's public and private half.
func keyPair(t *testing.T) (snapshots.Recipients, snapshots.Identities) {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	phasetest.Fatal(t, err)
	return snapshots.Recipients{key.Recipient()}, snapshots.Identities{key}
}

// opened returns the files in a sealed snapshot, by their path.
func opened(t *testing.T, s *phasetest.Stage, path string, with snapshots.Identities) map[string]snapshots.File {
	t.Helper()
	o, err := snapshots.Open(s.Host, path, with)
	phasetest.Fatal(t, err)
	defer o.Close()
	files := map[string]snapshots.File{}
	for _, f := range o.Files {
		files[f.Path] = f
	}
	return files
}

// TestSealed: one encrypted file has the snapshot and all that a bare host needs to take this control plane's place.
func TestSealed(t *testing.T) {
	s, _ := plane(t, encrypts)
	ofHost := []string{"/etc/kubernetes/manifests/etcd.yaml", "/etc/kubernetes/manifests/kube-apiserver.yaml"}
	for path, text := range map[string]string{
		"/etc/kubernetes/pki/apiserver.crt": "certificate", "/etc/kubernetes/pki/etcd/peer.key": "key", "/etc/kubernetes/admin.conf": "kubeconfig",
		"/var/lib/kubelet/config.yaml": "kind: KubeletConfiguration", "/etc/default/kubelet": "KUBELET_EXTRA_ARGS=",
		"/var/lib/kubelet/pki/kubelet-client-current.pem": "key",
	} {
		s.Put(t, path, text)
		ofHost = append(ofHost, path)
	}
	ofCluster := []string{"/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/pki/etcd/ca.crt", "/etc/kubernetes/pki/front-proxy-ca.crt"}
	for path, text := range map[string]string{
		"/etc/kubernetes/pki/ca.key": "key of the CA", "/etc/kubernetes/pki/sa.key": "key", "/etc/kubernetes/patches/etcd+merge.yaml": "patch",
		"/srv/enc/config.yaml": encryptionText, "/etc/keepalived/keepalived.conf": "vip", "/opt/haproxy/certs/a.pem": "certificate",
		"/etc/kubernetes/manifests/keepalived.yaml": `{"spec": {"containers": [{"name": "a", "volumeMounts": [{"name": "certs", "mountPath": "/c", "readOnly": true}]}],
  "volumes": [{"name": "conf", "hostPath": {"path": "/etc/keepalived/keepalived.conf"}}, {"name": "certs", "hostPath": {"path": "/opt/haproxy"}}]}}`,
		"/etc/kubernetes/manifests/.old.yaml": `{"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "conf", "hostPath": {"path": "/srv/old.conf"}}]}}`,
	} {
		s.Put(t, path, text)
		ofCluster = append(ofCluster, path)
	}
	for _, path := range []string{"/etc/kubernetes/tmp/kubeadm-backup-etcd/db", "/var/lib/etcd/member/snap/db", "/etc/ssl/certs/ca.pem", "/etc/kubernetes/.admin.conf.slipway-ABCDEFGH",
		"/srv/old.conf"} { // the kubelet doesn't read .old.yaml
		s.Put(t, path, "not saved")
	}
	s.Put(t, "/etc/kubernetes/huge", strings.Repeat("x", snapshots.MaxFile+1))
	phasetest.Fatal(t, os.Symlink("patches", s.Root+"/etc/kubernetes/linked"))

	to, with := keyPair(t)
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
	phasetest.Fatal(t, err)
	fact.List(t, []string{path}, dir+"/"+sealedName)
	if diff := cmp.Diff([]string{sealedName, sealedName + ".json"}, fixture.Entries(t, s.Root+dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	info, err := os.Stat(s.Root + path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	var got, gotOfHost []string
	for path, f := range opened(t, s, path, with) {
		if f.OfHost {
			gotOfHost = append(gotOfHost, path)
		} else {
			got = append(got, path)
		}
		if text := s.Get(t, path); string(f.Data) != text {
			t.Errorf("%s: %q", path, f.Data)
		}
	}
	for _, list := range [][]string{ofHost, ofCluster, got, gotOfHost} {
		slices.Sort(list)
	}
	if diff := cmp.Diff(ofHost, gotOfHost) + cmp.Diff(ofCluster, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	record, err := snapshots.Read(s.Host, path)
	phasetest.Fatal(t, err)
	fact.List(t, record.Sealed.OpensWith, to.Names()...)
	fact.In(t, strings.Join(record.Unknown, " "), "/etc/kubernetes/huge", "/etc/kubernetes/linked")
	fact.NotIn(t, s.Get(t, snapshots.RecordPath(path))+s.Said.String(), secret, "key of the CA")
	fact.NotIn(t, s.Get(t, path), secret, "key of the CA", "SQLite", "/registry")
}

// TestSealedLargeVolume: a static Pod may mount a directory with far more files than a snapshot has room for. The snapshot opens all the
// same, with the control plane's own files, and names some of the missing ones.
func TestSealedLargeVolume(t *testing.T) {
	s, _ := plane(t, "")
	s.Put(t, "/etc/kubernetes/manifests/agent.yaml", `{"spec": {"containers": [{"name": "a", "volumeMounts": [{"name": "host", "mountPath": "/h", "readOnly": true}]}],
  "volumes": [{"name": "host", "hostPath": {"path": "/opt"}}]}}`)
	for i := range 300 {
		path := fmt.Sprintf("/opt/a/large-%03d", i)
		s.Put(t, path, "")
		phasetest.Fatal(t, os.Truncate(s.Root+path, snapshots.MaxFile+1))
	}
	for i := range 2 * snapshots.MaxFiles / snapshots.MaxFile {
		path := fmt.Sprintf("/opt/b/%d/small", i)
		s.Put(t, path, "")
		phasetest.Fatal(t, os.Truncate(s.Root+path, snapshots.MaxFile))
	}
	to, with := keyPair(t)
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
	phasetest.Fatal(t, err)
	files := opened(t, s, path, with)
	for _, needed := range []string{"/etc/kubernetes/pki/ca.crt", "/etc/kubernetes/manifests/agent.yaml", "/opt/b/0/small"} {
		if _, found := files[needed]; !found {
			t.Errorf("it lacks %s", needed)
		}
	}
	record, err := snapshots.Read(s.Host, path)
	phasetest.Fatal(t, err)
	if n := len(record.Unknown); n > 2*maxMissed {
		t.Errorf("it names %d files", n)
	}
	fact.In(t, strings.Join(record.Unknown, " "), "/opt/a/large-000", "others")
}

// TestSealedElsewhere: the directory of a sealed snapshot may be another machine's, so it never has the snapshot in the clear.
func TestSealedElsewhere(t *testing.T) {
	s, m := plane(t, "")
	const backups = "/mnt/backups"
	s.Put(t, backups+"/other", "")
	m.looks = func() {
		if diff := cmp.Diff([]string{"other"}, fixture.Entries(t, s.Root+backups)); diff != "" {
			t.Errorf("while etcd sends it (-want +got):\n%s", diff)
		}
	}
	to, with := keyPair(t)
	path, err := Save(t.Context(), s.Env, Options{Dir: backups, Recipients: to})
	phasetest.Fatal(t, err)
	opened(t, s, path, with)
	fact.List(t, []string{filepath.Dir(path)}, backups)
	if left := fixture.Entries(t, s.Root+snapshots.Dir); len(left) != 0 {
		t.Errorf("%q is left in the clear", left)
	}
}

// TestSealedVerify: without a key, the file has to be the recorded one; with it, its content has to be whole, too.
func TestSealedVerify(t *testing.T) {
	s, _ := plane(t, "")
	to, with := keyPair(t)
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
	phasetest.Fatal(t, err)
	for _, keys := range []snapshots.Identities{nil, with} {
		v, err := Verify(s.Env, path, keys)
		if want := (Verified{Revision: 6, Keys: 2, Recorded: true, Sealed: true, Opened: keys != nil, Files: v.Files}); v != want || err != nil {
			t.Errorf("%+v, %v; want %+v", v, err, want)
		}
	}
	_, wrong := keyPair(t)
	_, err = Verify(s.Env, path, wrong)
	if err == nil {
		t.Fatal("opened with another key")
	}
	fact.In(t, fixture.Told(err), path, to.Names()[0])

	whole, record := s.Get(t, path), s.Get(t, snapshots.RecordPath(path))
	s.Put(t, path, whole[:len(whole)-1]+"x")
	for _, keys := range []snapshots.Identities{nil, with} {
		_, err := Verify(s.Env, path, keys)
		fact.Error(t, err, path, "SHA-256")
	}
	s.Put(t, path, whole)
	s.Put(t, snapshots.RecordPath(path), strings.Replace(record, `"revision": 6`, `"revision": 7`, 1))
	_, err = Verify(s.Env, path, with)
	fact.Error(t, err, path, "revision 6", "revision 7")

	s.Remove(t, snapshots.RecordPath(path))
	_, err = Verify(s.Env, path, nil)
	fact.Error(t, err, path)
	if v, err := Verify(s.Env, path, with); v.Recorded || !v.Opened || v.Revision != 6 || err != nil {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestSealedPrune: sealed snapshots count like others.
func TestSealedPrune(t *testing.T) {
	s, _ := plane(t, "")
	to, _ := keyPair(t)
	paths := saved(t, s, 2)
	s.FakeHost.On.Now = func() time.Time { return noon.Add(time.Hour) }
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 2}))
	list, unrecorded, err := snapshots.List(s.Host, dir)
	if err != nil || len(list) != 2 || len(unrecorded) != 0 || list[0].Path != paths[1] || list[1].Path != path {
		t.Errorf("%v, %v, %v", list, unrecorded, err)
	}
	s.Put(t, path, s.Get(t, path)[1:])
	if err := Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 1}); err == nil {
		t.Error("the newest is damaged")
	}
}

// TestSweep: the next save, or prune, removes what a killed save of this host has left behind, and nothing else.
func TestSweep(t *testing.T) {
	const taken = "etcd-cp-1-20261127T060000Z"
	leftovers := []string{
		"." + taken + ".db.slipway-ABCDEFGH", "..etcd-cp-1-20261126T060000Z.db.slipway-ABCDEFGH.slipway-22222222",
		"." + taken + ".tar.age.slipway-ABCDEFGH", taken + ".tar.age.json", "." + taken + ".db.json.slipway-ABCDEFGH",
	}
	const written = ".etcd-cp-1-20261127T030000Z.tar.age.slipway-ABCDEFGH" // for hours, to a slow disk
	others := []string{
		written,
		".etcd-cp-1-20261127T113000Z.db.slipway-ABCDEFGH", // may still be being written
		".etcd-cp-2-20261127T060000Z.db.slipway-ABCDEFGH", ".etcd-cp-1-copy.db.slipway-ABCDEFGH", ".etcd-cp-1-20261127T060000Z.db",
		"etcd-cp-1-20261125T060000Z.db.json", "etcd-cp-1-20261124T060000Z.db",
	}
	for name, run := range map[string]func(s *phasetest.Stage) error{
		"prune": func(s *phasetest.Stage) error { return Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 1}) },
		"save": func(s *phasetest.Stage) error {
			path, err := Save(t.Context(), s.Env, Options{Dir: dir})
			s.Remove(t, path)
			s.Remove(t, snapshots.RecordPath(path))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := plane(t, "")
			for _, file := range append(leftovers, others...) {
				s.Put(t, dir+"/"+file, "half")
				phasetest.Fatal(t, os.Chtimes(s.Root+dir+"/"+file, time.Time{}, noon.Add(-6*time.Hour)))
			}
			phasetest.Fatal(t, os.Chtimes(s.Root+dir+"/"+written, time.Time{}, noon.Add(-time.Minute)))
			phasetest.Fatal(t, run(s))
			want := slices.Sorted(slices.Values(others))
			if diff := cmp.Diff(want, fixture.Entries(t, s.Root+dir)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
