// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const etcdPod = "/etc/kubernetes/manifests/etcd.yaml"

// alone is control plane cp-1 with the only member of etcd, and a snapshot of it.
func alone(t *testing.T) (s *phasetest.Stage, m *members, path string) {
	t.Helper()
	s, m = plane(t, encrypts)
	s.Put(t, "/srv/enc/config.yaml", encryptionText)
	m.health = []etcd.Health{member(1, 1)}
	m.health[0].Status.Revision = 500
	path, err := Save(t.Context(), s.Env, Options{Dir: dir})
	phasetest.Fatal(t, err)
	s.Put(t, "/var/lib/etcd/member/snap/db", "data")
	return s, m, path
}

// changeRecord changes a snapshot's record.
func changeRecord(t *testing.T, s *phasetest.Stage, path string, change func(*snapshots.Record)) {
	t.Helper()
	r, err := snapshots.Read(s.Host, path)
	phasetest.Fatal(t, err)
	change(&r)
	data, err := r.Encode()
	phasetest.Fatal(t, err)
	s.Put(t, snapshots.RecordPath(path), string(data))
}

// TestRestoreRefuses: a snapshot that doesn't fit is refused before anything stops.
func TestRestoreRefuses(t *testing.T) {
	journal := func(t *testing.T, s *phasetest.Stage, j node.EtcdJournal) {
		t.Helper()
		phasetest.Fatal(t, j.Write(s.Env))
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, s *phasetest.Stage, m *members, path string)
		facts  []string // of the error; none if it's accepted
	}{
		"it fits": {func(*testing.T, *phasetest.Stage, *members, string) {}, nil},
		"another cluster's": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Authorities[certs.CA] = []string{"sha256:0"} })
		}, []string{dir, "sha256:0"}},
		"one of two CAs": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Authorities[certs.CA] = append(r.Authorities[certs.CA], "sha256:0") })
		}, nil},
		"a newer etcd's": {func(t *testing.T, s *phasetest.Stage, m *members, path string) {
			m.file = "internal/etcd/testdata/snapshot-3.7.db"
			saveAgain(t, s, path)
			s.Put(t, etcdPod, strings.Replace(s.Get(t, etcdPod), "/etcd:3.7.", "/etcd:3.6.", 1))
		}, []string{dir, "etcd 3.7", "etcd 3.6"}},
		"a lost key": {func(t *testing.T, s *phasetest.Stage, m *members, path string) {
			encryptedWith(t, s, m, path, "aescbc:v1:old", "kms:v2:vault")
			s.Put(t, "/srv/enc/config.yaml", strings.ReplaceAll(encryptionText, "name: old", "name: older"))
		}, []string{"aescbc:old,", "EncryptionConfiguration"}},
		"a lost key that encrypts nothing": {func(t *testing.T, s *phasetest.Stage, m *members, path string) {
			encryptedWith(t, s, m, path, "aescbc:v1:new", "kms:v2:vault")
			s.Put(t, "/srv/enc/config.yaml", strings.ReplaceAll(encryptionText, "name: old", "name: older"))
		}, nil},
		"a key that the API server did not have then": {func(t *testing.T, s *phasetest.Stage, m *members, path string) {
			encryptedWith(t, s, m, path, "aescbc:v1:new", "secretbox:v1:former")
		}, []string{"secretbox:former,", "EncryptionConfiguration"}},
		"another key of the same name": {func(t *testing.T, s *phasetest.Stage, m *members, path string) {
			encryptedWith(t, s, m, path, "aescbc:v1:new")
			s.Put(t, "/srv/enc/config.yaml", strings.Replace(encryptionText, secret, base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")), 1))
		}, []string{"aescbc:new", "other bytes", "EncryptionConfiguration"}},
		"another key of the same name, in an older record": {func(t *testing.T, s *phasetest.Stage, m *members, path string) {
			encryptedWith(t, s, m, path, "aescbc:v1:new")
			s.Put(t, "/srv/enc/config.yaml", strings.Replace(encryptionText, secret, base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")), 1))
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Encryption[0].Fingerprints = nil })
		}, nil},
		"a newer Kubernetes": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Kubernetes = "v1.38.0" })
		}, []string{dir, "v1.38.0", "v1.37.2", "kubernetesVersion"}},
		"a newer patch": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Kubernetes = "v1.37.9" })
		}, nil},
		"a damaged file of keys": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			s.Put(t, "/srv/enc/config.yaml", "resources: "+secret)
		},
			[]string{"/srv/enc/config.yaml"}},
		"a damaged snapshot": {func(t *testing.T, s *phasetest.Stage, _ *members, path string) { s.Put(t, path, s.Get(t, path)[512:]) }, []string{dir}},
		"no snapshot":        {func(t *testing.T, s *phasetest.Stage, _ *members, path string) { s.Remove(t, path) }, []string{dir}},
		"external": {func(_ *testing.T, s *phasetest.Stage, _ *members, _ string) {
			s.Config = s.Config.With(func(n *config.Node) {
				n.Cluster.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://192.0.2.99:2379"}}
			})
		}, []string{"https://192.0.2.99:2379"}},
		"no etcd": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) { s.Remove(t, etcdPod) }, []string{etcdPod, "--restore-etcd"}},
		"another workflow": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			journal(t, s, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/member"})
		}, []string{"`slipway etcd recover`"}},
		"another snapshot, half restored": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			journal(t, s, node.EtcdJournal{Command: restoreCommand, From: "/b.db", OldData: "/var/lib/etcd/member"})
		}, []string{"`slipway etcd restore /b.db`"}},
		"another snapshot, restored": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			pod := s.Get(t, etcdPod)
			s.Remove(t, etcdPod)
			journal(t, s, node.EtcdJournal{Command: restoreCommand, From: "/b.db", OldData: "/var/lib/etcd/member", Manifest: pod, Replaced: true})
		}, nil},
		"another snapshot, before the replacement": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			journal(t, s, node.EtcdJournal{Command: restoreCommand, From: "/b.db", OldData: "/var/lib/etcd/old", Manifest: s.Get(t, etcdPod)})
			s.Remove(t, etcdPod)
		}, nil},
		"a recovery, before the replacement": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			journal(t, s, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/old", Manifest: s.Get(t, etcdPod)})
			s.Remove(t, etcdPod)
		}, nil},
		"a recovery that does not start": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			journal(t, s, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/member", Manifest: s.Get(t, etcdPod), Replaced: true})
			s.Remove(t, etcdPod)
		}, nil},
		"a run that changed nothing": {func(t *testing.T, s *phasetest.Stage, _ *members, _ string) {
			journal(t, s, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/old"})
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, path := alone(t)
			c.change(t, s, m, path)
			r, err := NewRestore(t.Context(), s.Env, Source{File: path})
			if len(c.facts) == 0 {
				phasetest.Fatal(t, err)
				then := r.info.Revision
				fact.In(t, r.Summary(), path, fmt.Sprintf("revision %d", then), "revision 500", fmt.Sprintf("%d revisions", 500-then), "2026-11-27 12:00:00 UTC")
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fixture.Told(err), c.facts...)
			fact.NotIn(t, fixture.Told(err), secret)
		})
	}
}

// encryptedWith replaces the snapshot by one with a value for each of these keys, named as in etcd.
func encryptedWith(t *testing.T, s *phasetest.Stage, m *members, path string, keys ...string) {
	t.Helper()
	values := map[string]string{}
	for _, key := range keys {
		values["/registry/secrets/shop/"+key] = "k8s:enc:" + key + ":x"
	}
	m.content = snapshotWith(t, values)
	saveAgain(t, s, path)
}

// TestRestoreAfterRestore: a restore skips revisions, which aren't counted as lost.
func TestRestoreAfterRestore(t *testing.T) {
	s, m, path := alone(t)
	m.health[0].Status.Revision = etcd.RevisionBump + 500
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	fact.In(t, r.Summary(), "revision 1000000500")
	fact.NotIn(t, r.Summary(), "1000000494")
}

// saveAgain replaces a snapshot by another of the same name.
func saveAgain(t *testing.T, s *phasetest.Stage, path string) {
	t.Helper()
	s.Remove(t, path)
	again, err := Save(t.Context(), s.Env, Options{Dir: dir})
	phasetest.Fatal(t, err)
	fact.List(t, []string{again}, path)
}

// TestRestoreDoubts: whatever can't be checked is in the question.
func TestRestoreDoubts(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *phasetest.Stage, path string)
		facts  []string
	}{
		"no record": {func(t *testing.T, s *phasetest.Stage, path string) { s.Remove(t, snapshots.RecordPath(path)) }, []string{".db.json"}},
		"no CA": {func(t *testing.T, s *phasetest.Stage, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { delete(r.Authorities, certs.CA) })
		}, []string{"NOT CHECKED", "CA"}},
		"no keys": {func(t *testing.T, s *phasetest.Stage, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) {
				r.Unknown, r.Encryption = []string{"the names of the " + encryptionFact + ": /x is missing"}, nil
			})
		}, []string{"NOT CHECKED", "/x"}},
		"no version": {func(t *testing.T, s *phasetest.Stage, path string) {
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Kubernetes = "" })
		}, []string{"NOT CHECKED", "Kubernetes (v1.37.2)"}},
		"an image of one's own": {func(t *testing.T, s *phasetest.Stage, _ string) {
			s.Put(t, etcdPod, strings.Replace(s.Get(t, etcdPod), "/etcd:3.7.", "/etcd:mine-3.7.", 1))
		}, []string{"NOT CHECKED", "etcd 3.6.0"}},
		"no API": {func(_ *testing.T, s *phasetest.Stage, _ string) {
			s.Cluster = failingNodes{s.Cluster}
		}, []string{"NOT CHECKED", "Nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _, path := alone(t)
			c.change(t, s, path)
			r, err := NewRestore(t.Context(), s.Env, Source{File: path})
			phasetest.Fatal(t, err)
			fact.In(t, r.Summary(), c.facts...)
		})
	}
}

type failingNodes struct{ cluster.Cluster }

func (failingNodes) Nodes(context.Context) ([]corev1.Node, error) { return nil, errors.New("no API") }

// TestUsedKeys: what was written before its encryption still needs identity, even if nothing was written since.
func TestUsedKeys(t *testing.T) {
	recorded := []snapshots.Encryption{{Keys: []string{"aescbc:a", "aescbc:b:c", "identity"}}, {Keys: []string{"aescbc:a", "kms:d"}}}
	for used, want := range map[string][][]string{
		"":                    {{"identity"}, {}},
		"aescbc:a":            {{"aescbc:a", "identity"}, {"aescbc:a"}},
		"aescbc:b":            {{"aescbc:b:c", "identity"}, {}},
		"kms:d secretbox:new": {{"identity"}, {"kms:d"}, {"secretbox:new"}},
	} {
		var got [][]string
		for _, e := range usedKeys(recorded, strings.Fields(used)) {
			got = append(got, e.Keys)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", used, diff)
		}
	}
}

func TestMissingKeys(t *testing.T) {
	keys := func(list ...string) []snapshots.Encryption {
		if len(list) == 0 {
			return nil
		}
		return []snapshots.Encryption{{Resources: []string{"secrets"}, Keys: list}}
	}
	for name, c := range map[string]struct {
		stored, now []snapshots.Encryption
		want        []string
	}{
		"neither":                    {keys(), keys(), nil},
		"the same":                   {keys("aescbc:a", "identity"), keys("aescbc:a", "identity"), nil},
		"another order":              {keys("aescbc:a", "aescbc:b"), keys("aescbc:b", "aescbc:a"), nil},
		"no plain text":              {keys("aescbc:a", "identity"), keys("aescbc:a"), nil},
		"encrypted since":            {keys(), keys("aescbc:a", "identity"), nil},
		"encrypted since, and all":   {keys(), keys("aescbc:a"), []string{"identity"}},
		"not encrypted any more":     {keys("aescbc:a"), keys(), []string{"aescbc:a"}},
		"another provider":           {keys("aescbc:a"), keys("secretbox:a"), []string{"aescbc:a"}},
		"decrypted, with an old key": {keys("identity", "aescbc:a"), keys("identity"), []string{"aescbc:a"}},
		"of two resources":           {append(keys("aescbc:a"), keys("aescbc:a", "kms:b")...), keys("kms:c"), []string{"aescbc:a", "kms:b"}},
	} {
		missing, changed := missingKeys(c.stored, c.now)
		if diff := cmp.Diff(c.want, missing); diff != "" || len(changed) > 0 {
			t.Errorf("%s (-want +got):\n%s%q", name, diff, changed)
		}
	}
}

// TestRestoreSealed: a sealed snapshot is restored by anyone who can open it.
func TestRestoreSealed(t *testing.T) {
	s, _, path := alone(t)
	s.Remove(t, path)
	to, with := keyPair(t)
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Recipients: to})
	phasetest.Fatal(t, err)
	_, others := keyPair(t)
	for name, with := range map[string]snapshots.Identities{"no key": nil, "another key": others} {
		_, err := NewRestore(t.Context(), s.Env, Source{File: path, With: with})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r, err := NewRestore(t.Context(), s.Env, Source{File: path, With: with})
	phasetest.Fatal(t, err)
	fact.In(t, r.Summary(), path, "revision 6", "2026-11-27 12:00:00 UTC")
	phasetest.Fatal(t, r.build(t.Context(), s.Env))
	if diff := cmp.Diff([]string{"snap", "wal"}, fixture.Entries(t, s.Root+"/var/lib/etcd/member.new")); diff != "" {
		t.Errorf("(-want +made):\n%s", diff)
	}
}

// TestRestoreOfAnother: the file may change while the operator reads the plan.
func TestRestoreOfAnother(t *testing.T) {
	for _, seal := range []bool{false, true} {
		t.Run(fmt.Sprintf("sealed: %t", seal), func(t *testing.T) {
			s, m, _ := alone(t)
			options, with := Options{Dir: dir}, snapshots.Identities(nil)
			if seal {
				options.Recipients, with = keyPair(t)
			}
			s.Remove(t, dir)
			path, err := Save(t.Context(), s.Env, options)
			phasetest.Fatal(t, err)
			source := &Source{File: path, With: with}
			phasetest.Fatal(t, source.read(s.Env))
			_, err = source.fill(t.Context(), s.Env, t.TempDir(), "cp-1", phasetest.OwnPeer, 0)
			phasetest.Fatal(t, err)

			m.file = "internal/etcd/testdata/snapshot-3.7.db"
			s.Remove(t, dir)
			again, err := Save(t.Context(), s.Env, options)
			phasetest.Fatal(t, err)
			s.Put(t, path, s.Get(t, again))
			_, err = source.fill(t.Context(), s.Env, t.TempDir(), "cp-1", phasetest.OwnPeer, 0)
			fact.Error(t, err, path)
		})
	}
}

// TestRestoreWithoutFile: once the new data is complete, the snapshot isn't needed.
func TestRestoreWithoutFile(t *testing.T) {
	s, _, path := alone(t)
	phasetest.Fatal(t, node.EtcdJournal{Command: restoreCommand, From: path, OldData: "/var/lib/etcd/member", Manifest: s.Get(t, etcdPod)}.Write(s.Env))
	s.Remove(t, path)
	s.Remove(t, etcdPod)
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
	fact.In(t, r.Summary(), path)
}

// TestRestoreServedBefore: a run that finds the data restored already says since when, at the question and at the end, because everything
// written since then stays.
func TestRestoreServedBefore(t *testing.T) {
	s, _, path := alone(t)
	for name, c := range map[string]struct {
		journal node.EtcdJournal
		since   bool
	}{
		"it served":      {node.EtcdJournal{Replaced: true, Serves: true, Since: noon.AddDate(0, 0, -3)}, true},
		"it may have":    {node.EtcdJournal{Replaced: true, Since: noon.AddDate(0, 0, -3)}, true},
		"it wasn't done": {node.EtcdJournal{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := c.journal
			j.Command, j.From, j.OldData, j.Manifest = restoreCommand, path, "/var/lib/etcd/member", s.Get(t, etcdPod)
			phasetest.Fatal(t, j.Write(s.Env))
			s.Said.Reset()
			r, err := NewRestore(t.Context(), s.Env, Source{File: path})
			phasetest.Fatal(t, err)
			phasetest.Fatal(t, r.recheck(t.Context(), s.Env))
			asked := r.Summary()
			phasetest.Fatal(t, r.finish(t.Context(), s.Env))
			for _, text := range []string{asked, s.Said.String()} {
				if fact.In(t, text, path); strings.Contains(text, "2026-11-24 12:00:00 UTC") != c.since {
					t.Errorf("the time is there: %t; want %t:\n%s", !c.since, c.since, text)
				}
			}
		})
	}
}

// TestRestoreResumes: a restore that was interrupted before it moved any data asks the others again.
func TestRestoreResumes(t *testing.T) {
	s, m, path := alone(t)
	phasetest.Fatal(t, node.EtcdJournal{Command: restoreCommand, From: path, OldData: "/var/lib/etcd/old", Manifest: s.Get(t, etcdPod),
		Revision: 700, Others: []string{"cp-3"}, Nodes: []string{"cp-1"}}.Write(s.Env))
	s.Remove(t, etcdPod)
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, r.recheck(t.Context(), s.Env))
	if r.journal.Revision != 700 {
		t.Errorf("revision %d", r.journal.Revision)
	}
	fact.List(t, append(r.journal.Others, r.journal.Nodes...), "cp-3", "cp-1")

	m.health = append(m.health, member(2, 1))
	fact.Error(t, r.recheck(t.Context(), s.Env), "cp-2")
	_, err = NewRestore(t.Context(), s.Env, Source{File: path})
	fact.In(t, fixture.Told(err), "run: cp-2.", "`slipway reset` on cp-2;", etcdPod, node.EtcdJournalPath(s.Config.Paths))
}

// TestRestoreLooksAgain: whatever has changed while the operator thought about the question ends the restore.
func TestRestoreLooksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *phasetest.Stage, m *members)
		facts  []string
	}{
		"cp-2 came back":     {func(_ *testing.T, _ *phasetest.Stage, m *members) { m.health = append(m.health, member(2, 1)) }, []string{"cp-2"}},
		"another static Pod": {func(t *testing.T, s *phasetest.Stage, _ *members) { t.Helper(); s.Append(t, etcdPod, "# another") }, []string{"again"}},
		"another terminal": {func(t *testing.T, s *phasetest.Stage, _ *members) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: "etcd recover", OldData: "/var/lib/etcd/member"}.Write(s.Env))
		}, []string{"`slipway etcd recover`"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m, path := alone(t)
			r, err := NewRestore(t.Context(), s.Env, Source{File: path})
			phasetest.Fatal(t, err)
			c.change(t, s, m)
			err = r.preflight(t.Context(), s.Env)
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fixture.Told(err), c.facts...)
		})
	}
}

// TestRestoreBesideOthers: nobody resets members before seeing the whole plan, and no flag restores beside them.
func TestRestoreBesideOthers(t *testing.T) {
	s, m, path := alone(t)
	m.health = append(m.health, member(2, 1))
	s.Config.IgnorePreflightErrors = []string{strings.ToLower(fault.EtcdOtherMembers)}
	s.FakeHost.Has.Space["/"] = host.Space{Free: 10<<30 + 1<<20, Total: 100 << 30, FreeInodes: 1, TotalInodes: 1}
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	fact.In(t, r.Summary(), "2026-11-27 12:00:00 UTC", "494 revisions", "cp-2")
	if !r.Blocked() {
		t.Error("the operator is asked in vain")
	}
	err = r.preflight(t.Context(), s.Env)
	if err == nil {
		t.Fatal("no error")
	}
	fact.In(t, fixture.Told(err), "EtcdRestoreSpace", fault.EtcdOtherMembers, "run: cp-2.", "`slipway reset` on cp-2")
	s.FakeHost.Has.Space["/"] = host.Space{Free: 50 << 30, Total: 100 << 30, FreeInodes: 1 << 20, TotalInodes: 1 << 20}
	if r.preflight(t.Context(), s.Env) == nil {
		t.Error("it's restored beside cp-2")
	}
}

// TestRestoreChecks: others that don't answer, or a full disk, end a restore before anything stops.
func TestRestoreChecks(t *testing.T) {
	s, m, path := alone(t)
	down := member(2, 1)
	down.Answers, down.Err = false, errors.New("connection refused")
	m.health = append(m.health, down)
	s.FakeHost.Has.Space["/"] = host.Space{Free: 10<<30 + 1<<20, Total: 100 << 30, FreeInodes: 1, TotalInodes: 1}
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	fact.In(t, r.Summary(), "cp-2")
	err = r.preflight(t.Context(), s.Env)
	if err == nil {
		t.Fatal("no error")
	}
	fact.In(t, fixture.Told(err), fault.EtcdOtherMembers, "cp-2", "EtcdRestoreSpace", "`slipway etcd prune`")
}

// TestRestoreSaysRejoin: each other control plane gets the commands with which it comes back.
func TestRestoreSaysRejoin(t *testing.T) {
	s, _, path := alone(t)
	r := &Restore{Source: Source{File: path}, replacement: node.EtcdDataReplacement{OldData: "/var/lib/etcd/old"}}
	r.journal.Others = []string{"cp-2", peer("cp-3")}
	phasetest.Fatal(t, r.finish(t.Context(), s.Env))
	said := s.Said.String() + s.Results.String()
	fact.In(t, said, "cp-2", peer("cp-3"), "`slipway reset --force`", "`kubectl delete node --ignore-not-found cp-2`")
	if count := strings.Count(said, "`slipway token create --print-join-command --control-plane`"); count != 2 {
		t.Errorf("%d of 2 hosts have a command to join:\n%s", count, said)
	}
}

// fullAPI is the API of a full etcd: it's ready, and takes no writes.
type fullAPI struct{ cluster.Cluster }

func (fullAPI) Ready(context.Context) error { return nil }

func (fullAPI) Update(context.Context, cluster.Object, func() (bool, error)) (bool, error) {
	return false, errors.New("ErrNoSpace")
}

// TestRestoreOfFullEtcd: a restore may be the way to make room, so it needs no Lease then. Any other failure to write ends it, and any
// other command.
func TestRestoreOfFullEtcd(t *testing.T) {
	s, m, _ := alone(t)
	s.Cluster = fullAPI{s.Cluster}
	_, err := node.AcquireLeaseIfReachable(t.Context(), s.Env, node.ForRestore)
	fact.Error(t, err, "ErrNoSpace")
	m.health[0].Status.Alarms = []etcd.Alarm{{Member: 1, Kind: "NOSPACE"}}
	mine, err := node.AcquireLeaseIfReachable(t.Context(), s.Env, node.ForRestore)
	phasetest.Fatal(t, err)
	if mine.Held {
		t.Error("the Lease was written")
	}
	fact.In(t, s.Said.String(), "NOSPACE")
	_, err = node.AcquireLeaseIfReachable(t.Context(), s.Env, node.ForRenewal)
	fact.Error(t, err, "ErrNoSpace")
}

// TestRestoreClears: what a killed run was making takes no space from the next run.
func TestRestoreClears(t *testing.T) {
	s, _, path := alone(t)
	s.Put(t, phasetest.HalfBuilt+"/snap/db", "half")
	s.Host = phasetest.Cramped{Host: s.Host, By: phasetest.HalfBuilt}
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
}

// TestRestoreEnds: an operator who ends a restore while it makes etcd's data keeps a running etcd.
func TestRestoreEnds(t *testing.T) {
	s, _, path := alone(t)
	r, err := NewRestore(t.Context(), s.Env, Source{File: path})
	phasetest.Fatal(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.replaceWithLease(ctx, s.Env, node.Lease{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if s.Get(t, etcdPod) != r.journal.Manifest {
		t.Error("etcd's static Pod is gone")
	}
	if entries := fixture.Entries(t, s.Root+"/var/lib/etcd"); len(entries) > 1 {
		t.Errorf("it left %v", entries)
	}
}

// TestRestoreOfOlderKubernetes: the operator learns that the stored configuration goes back, and how it comes forward again.
func TestRestoreOfOlderKubernetes(t *testing.T) {
	for version, older := range map[string]bool{"v1.36.4": true, "v1.37.0": false} {
		t.Run(version, func(t *testing.T) {
			s, _, path := alone(t)
			changeRecord(t, s, path, func(r *snapshots.Record) { r.Kubernetes = version })
			r, err := NewRestore(t.Context(), s.Env, Source{File: path})
			phasetest.Fatal(t, err)
			phasetest.Fatal(t, r.recheck(t.Context(), s.Env))
			const upgrade = "`slipway upgrade apply v1.37.2`"
			if says := strings.Contains(r.Summary(), upgrade); says != older {
				t.Errorf("%t: %s", says, r.Summary())
			}
			phasetest.Fatal(t, r.build(t.Context(), s.Env))
			s.Remove(t, etcdPod)
			finishing, err := NewRestore(t.Context(), s.Env, Source{File: path}) // after an interruption
			phasetest.Fatal(t, err)
			finishing.journal.Others = []string{"cp-2"}
			phasetest.Fatal(t, finishing.finish(t.Context(), s.Env))
			said := s.Said.String() + s.Results.String()
			if strings.Contains(said, upgrade) != older {
				t.Errorf("older: %t: %s", older, said)
			}
			if older && strings.Index(said, upgrade) < strings.Index(said, "`kubectl delete node") {
				t.Errorf("an upgrade is refused while lost nodes are registered: %s", said)
			}
		})
	}
}
