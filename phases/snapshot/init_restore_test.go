// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// bare is a host with nothing but the cluster's PKI, encryption keys and a snapshot.
func bare(t *testing.T) (*phasetest.Stage, *members, string) {
	t.Helper()
	s, m, path := alone(t)
	s.Put(t, "/etc/kubernetes/pki/sa.key", "key")
	for _, tree := range []string{"/etc/kubernetes/manifests", "/var/lib/etcd"} {
		phasetest.Fatal(t, os.RemoveAll(s.Root+tree))
	}
	return s, m, path
}

// TestBareHost: init begins with the snapshot's data, and an interrupted one continues with it.
func TestBareHost(t *testing.T) {
	s, _, path := bare(t)
	s.Config.IgnorePreflightErrors = []string{strings.ToLower(fault.EtcdOtherMembers)}
	b, err := NewBareHost(s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
	fact.In(t, s.Said.String(), path, "revision 6", "2026-11-27 12:00:00 UTC")
	phasetest.Fatal(t, b.restoreData(t.Context(), s.Env))
	made := []string{"snap", "wal"}
	if diff := cmp.Diff(made, fixture.Entries(t, s.Root+"/var/lib/etcd/member")); diff != "" {
		t.Errorf("(-want +made):\n%s", diff)
	}
	if got := newestRevision(t, s.Root+"/var/lib/etcd/member/snap/db"); got != noon.UnixMicro() {
		t.Errorf("at revision %d, not at the present time", got)
	}
	if err := NoneInterrupted(s.Env); err == nil {
		t.Error("an init without the snapshot isn't refused")
	}
	if _, err := NewBareHost(s.Env, Source{File: "/b.db"}); err == nil {
		t.Error("another snapshot isn't refused")
	}
	stamps := phasetest.Stamps(t, s.Root)
	s.Remove(t, path)
	b, err = NewBareHost(s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
	phasetest.Fatal(t, b.restoreData(t.Context(), s.Env))
	delete(stamps, path)
	now := phasetest.Stamps(t, s.Root)
	delete(stamps, dir)
	delete(now, dir)
	if diff := cmp.Diff(stamps, now); diff != "" {
		t.Errorf("the second run wrote (-before +after):\n%s", diff)
	}
	phasetest.Fatal(t, b.finish(t.Context(), s.Env))
	fact.In(t, s.Said.String(), "interrupted")
	phasetest.Fatal(t, NoneInterrupted(s.Env))
	if _, err := s.Host.Lstat(node.EtcdJournalPath(s.Config.Paths)); err == nil {
		t.Error("the journal is left")
	}
}

// newestRevision returns the revision of the last record in an etcd's database.
func newestRevision(t *testing.T, path string) (revision int64) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	phasetest.Fatal(t, err)
	defer db.Close()
	phasetest.Fatal(t, db.View(func(tx *bbolt.Tx) error {
		last, _ := tx.Bucket([]byte("key")).Cursor().Last()
		revision = int64(binary.BigEndian.Uint64(last))
		return nil
	}))
	return revision
}

// TestBareHostForeignData: an etcd that has started on its own since an interruption isn't the restored one.
func TestBareHostForeignData(t *testing.T) {
	s, _, path := bare(t)
	s.Config.IgnorePreflightErrors = []string{strings.ToLower(fault.EtcdOtherMembers)}
	b, err := NewBareHost(s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
	phasetest.Fatal(t, b.journal.Write(s.Env)) // and the run was killed
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa, 0xb, true))
	_, err = NewBareHost(s.Env, Source{File: path})
	fact.Error(t, err, "/var/lib/etcd/member")
	b.journal.Cluster = "c"
	phasetest.Fatal(t, b.journal.Write(s.Env))
	_, err = NewBareHost(s.Env, Source{File: path})
	fact.Error(t, err, "/var/lib/etcd/member", "cluster b", "cluster c")
}

// TestBareHostSkips: without its own phases, init would begin a new cluster.
func TestBareHostSkips(t *testing.T) {
	for _, name := range []string{"restore-etcd", "Restore-Files"} {
		s, _, path := bare(t)
		s.Config.SkipPhases = []string{"addon", name}
		_, err := NewBareHost(s.Env, Source{File: path})
		fact.Error(t, err, "--skip-phases="+name)
	}
}

// TestBareHostSealed: the files of the cluster come from the snapshot, and this host's own don't.
func TestBareHostSealed(t *testing.T) {
	s, _, path := alone(t)
	s.Remove(t, path)
	for _, file := range []string{"sa.key", "sa.pub", "apiserver.crt", "ca.key"} {
		s.Put(t, "/etc/kubernetes/pki/"+file, "of "+file)
	}
	s.Remove(t, "/etc/kubernetes/pki/ca.key")
	to, with := keyPair(t)
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
	phasetest.Fatal(t, err)
	for _, tree := range []string{"/etc/kubernetes", "/var/lib/etcd", "/srv/enc"} {
		phasetest.Fatal(t, os.RemoveAll(s.Root+tree))
	}
	b, err := NewBareHost(s.Env, Source{File: path, With: with})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
	if text := s.Get(t, "/etc/kubernetes/pki/sa.key") + s.Get(t, "/srv/enc/config.yaml"); text != "of sa.key"+encryptionText {
		t.Errorf("restored: %s", text)
	}
	for _, own := range []string{"/etc/kubernetes/pki/apiserver.crt", etcdPod} {
		if _, err := s.Host.Lstat(own); err == nil {
			t.Errorf("%s of another host was restored", own)
		}
	}
	s.Put(t, "/etc/kubernetes/pki/sa.key", "another")
	fact.Error(t, b.restoreFiles(t.Context(), s.Env), "/etc/kubernetes/pki/sa.key", path)
}

// TestBareHostForged: the maker of a snapshot doesn't choose where its files go, and who may read its keys.
func TestBareHostForged(t *testing.T) {
	s, _, path := bare(t)
	b, err := NewBareHost(s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	taken := map[string]fs.FileMode{"/etc/kubernetes/pki/front-proxy-ca.key": 0o600, "/etc/kubernetes/policy.yaml": 0o744}
	left := []string{"/etc/cron.d/forged", "/etc/kubernetes-other/a", "/etc/kubernetes/admin.conf", "/etc/kubernetes/pki/apiserver.crt", etcdPod,
		node.EtcdJournalPath(s.Config.Paths), "/var/lib/etcd/member/snap/db"}
	for _, path := range append(slices.Sorted(maps.Keys(taken)), left...) {
		b.files = append(b.files, snapshots.File{Path: path, Mode: 0o766, Owner: host.Owner{UID: 1000, GID: 1000}, Data: []byte("forged")})
	}
	phasetest.Fatal(t, b.restoreFiles(t.Context(), s.Env))
	for path, mode := range taken {
		info, err := s.Host.Lstat(path)
		phasetest.Fatal(t, err)
		if owner, known := host.OwnerIn(info); info.Mode() != mode || known && owner.UID == 1000 {
			t.Errorf("%s has the mode %s and the owner %v", path, info.Mode(), owner)
		}
	}
	for _, path := range left {
		if _, err := s.Host.Lstat(path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
}

// TestBareHostRefuses: without the cluster's own keys, or beside its members, nothing is restored.
func TestBareHostRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *phasetest.Stage, m *members, path string)
		facts  []string
	}{
		"no CA": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			s.Remove(t, "/etc/kubernetes/pki/ca.crt")
		},
			[]string{"/etc/kubernetes/pki/ca.crt", "--with-pki"}},
		"no key of service accounts": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			s.Remove(t, "/etc/kubernetes/pki/sa.key")
		},
			[]string{"/etc/kubernetes/pki/sa.key", "--with-pki"}},
		"another CA": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Authorities[certs.CA] = []string{"sha256:0"} })
		}, []string{"sha256:0"}},
		"a lost key": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) {
			s.Remove(t, snapshots.RecordPath(path))
			s.Put(t, path, snapshotWith(t, map[string]string{"/registry/secrets/a/b": "k8s:enc:aescbc:v1:lost:x"}))
		}, []string{"aescbc:lost"}},
		"data of an etcd": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			s.Put(t, "/var/lib/etcd/member/snap/db", "data")
		},
			[]string{"/var/lib/etcd/member", "`slipway etcd restore`"}},
		"a member that runs": {func(_ *testing.T, _ *phasetest.Stage, m *members, _ string) { m.running = true }, []string{"127.0.0.1:23800", "join"}},
		"another host at a member's address": {func(_ *testing.T, _ *phasetest.Stage, m *members, _ string) { m.elsewhere = true },
			[]string{peer("cp-2"), "--ignore-preflight-errors=EtcdOtherMembers"}},
		"a member that may run": {func(*testing.T, *phasetest.Stage, *members, string) {}, []string{fault.EtcdOtherMembers, "https://"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, path := bare(t)
			c.change(t, s, m, path)
			b, err := NewBareHost(s.Env, Source{File: path})
			if err == nil {
				err = b.restoreFiles(t.Context(), s.Env)
			}
			if err == nil {
				b.info.Members = append(b.info.Members, etcd.Member{Name: "cp-2", PeerURL: peer("cp-2")})
				err = b.restoreData(t.Context(), s.Env)
			}
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fixture.Told(err), c.facts...)
		})
	}
}

// TestBareHostWithin: the files come before the certificates, the data before etcd.
func TestBareHostWithin(t *testing.T) {
	at := map[string]int{}
	for i, p := range (&BareHost{}).AddTo(bootstrap.Init()) {
		at[p.Name] = i
	}
	for _, order := range [][2]string{{"preflight", "restore-files"}, {"restore-files", "certs"}, {"certs", "restore-etcd"}, {"restore-etcd", "etcd"},
		{"addon", "settle"}, {"settle", "show-join-command"}, {"show-join-command", "restored"}} {
		before, there := at[order[0]]
		if after := at[order[1]]; !there || after <= before {
			t.Errorf("%s is at %d, %s at %d", order[0], before, order[1], after)
		}
	}
}

func (m *members) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := phasetest.Silent(urls)
	for i := range all {
		switch {
		case m.running:
			all[i].Err = nil
		case m.elsewhere:
			all[i].Err, all[i].Stranger = etcd.AcceptedError{Err: x509.UnknownAuthorityError{}}, true
		}
	}
	return all
}
