// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/golden"
)

// members is an etcd of these members.
type members struct {
	etcd.Etcd
	all    []etcd.Health
	hashes []etcd.KeysHash
	// compacted are the revisions of the last compaction for each time that the hashes are asked for; none keeps those of hashes.
	compacted [][]int64
	asked     *int
	err       error
}

func (m members) Health(context.Context) ([]etcd.Health, error) { return m.all, m.err }

func (m members) HashKV(_ context.Context, revision int64) ([]etcd.KeysHash, error) {
	if revision != etcd.CommonRevision(m.all) {
		return nil, errors.Errorf("asked for revision %d", revision)
	}
	hashes := slices.Clone(m.hashes)
	if *m.asked++; *m.asked <= len(m.compacted) {
		for i, revision := range m.compacted[*m.asked-1] {
			hashes[i].Compacted = revision
		}
	}
	return hashes, nil
}

// three returns cp-1, which is the fixture's host, cp-2, which leads, and cp-3.
func three() []etcd.Health {
	var all []etcd.Health
	for i := range uint64(3) {
		address := fmt.Sprintf("https://192.0.2.1%d", i+1)
		all = append(all, etcd.Health{
			Member: etcd.Member{ID: 0xa0 + i, Cluster: 0xcdf818194e3a8c32, Name: fmt.Sprintf("cp-%d", i+1), PeerURL: address + ":2380",
				ClientURLs: []string{address + ":2379"}},
			Answers: true, Status: etcd.Status{Version: "3.7.0", Leader: 0xa1, Committed: 60, Applied: 60 - i, Revision: 43 - int64(i), Size: 30 << 20, InUse: 21 << 20, Quota: 2 << 30},
		})
	}
	return all
}

// partsOf are the parts of a control plane, cp-1, with this etcd.
func partsOf(t *testing.T, e etcd.Etcd) *env.Parts {
	t.Helper()
	root, node := t.TempDir(), fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument)
	pod, err := yaml.Marshal(manifests.Etcd(node, manifests.HostView{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, root, "/etc/kubernetes/manifests/etcd.yaml", string(pod))
	return &env.Parts{Env: &step.Env{Config: node, Host: linux.NewAt(root), Etcd: e}}
}

func TestStatus(t *testing.T) {
	refused := errors.New("192.0.2.13:2379: connection refused")
	for name, test := range map[string]struct {
		form    string
		hash    bool
		change  func(m *members)
		verdict []string // facts; nil for exit code 0
	}{
		"healthy": {"text", false, func(*members) {}, nil},
		"json":    {"json", true, func(*members) {}, nil},
		"yaml":    {"yaml", false, func(m *members) { m.all = m.all[:1] }, nil},
		"hashkv": {"text", true, func(m *members) { m.hashes[2].Err, m.hashes[1].Hash = refused, 5 },
			[]string{"etcd-corrupt (etcd)", "etcd-not-compared (etcd)"}},
		"hashkv of one":        {"text", true, func(m *members) { m.all, m.hashes = m.all[:1], m.hashes[:1] }, nil},
		"without a hash":       {"json", true, func(m *members) { m.hashes[2].Err = refused }, []string{"etcd-not-compared (etcd)"}},
		"just compacted":       {"text", true, func(m *members) { m.compacted = [][]int64{{30, 35, 30}} }, nil},
		"compacted apart":      {"text", true, func(m *members) { m.compacted = [][]int64{{30, 35, 30}, {30, 35, 30}} }, []string{"etcd-not-compared (etcd)"}},
		"hashkv and a learner": {"text", true, func(m *members) { m.all[2].Learner, m.hashes[2].Err = true, refused }, []string{"etcd-learner (cp-3)"}},
		"troubled": {"text", false, func(m *members) {
			m.all[2] = etcd.Health{Member: m.all[2].Member, Err: refused}
			m.all[0].Status.Size, m.all[0].Status.Alarms = 2<<30, []etcd.Alarm{{Member: 0xa0, Kind: "NOSPACE"}}
			m.all = append(m.all, etcd.Health{Member: etcd.Member{ID: 0xa3, PeerURL: "https://192.0.2.14:2380", Learner: true}, Err: errors.New("it has not started yet")})
		}, []string{"etcd-space (cp-1)", "etcd-down (cp-3)", "etcd-not-started (https://192.0.2.14:2380)"}},
		"survivor": {"text", false, func(m *members) {
			for i := range m.all {
				m.all[i] = etcd.Health{Member: m.all[i].Member, Err: refused}
			}
			m.all[0].Answers, m.all[0].Err = true, errors.New("it has no leader")
			m.all[0].Status = etcd.Status{Version: "3.7.0", Committed: 60, Applied: 60, Revision: 43, Size: 30 << 20, InUse: 21 << 20, Quota: 2 << 30}
		}, []string{"etcd-quorum-lost (etcd)", "etcd-down (cp-2)", "etcd-down (cp-3)"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := members{all: three(), asked: new(int)}
			for _, h := range e.all {
				e.hashes = append(e.hashes, etcd.KeysHash{Member: h.Member, Hash: 0x1234abcd, Compacted: 30})
			}
			test.change(&e)
			var out bytes.Buffer
			g := &cli.Globals{Program: "slipway", Streams: cli.Streams{Out: &out, Err: &out}}
			p := partsOf(t, e)
			if name != "healthy" {
				record(t, p)
			}
			s, err := look(t.Context(), p, test.hash)
			if err != nil {
				t.Fatal(err)
			}
			s.addLast(p.Env, snapshots.Dir)
			if err := (&cli.OutputOptions{Form: test.form}).Print(g, s, s.table); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, "testdata/status-"+strings.ReplaceAll(name, " ", "-")+".txt", out.String())
			if err := s.verdict(); cli.CodeOf(err) != 2 != (test.verdict == nil) {
				t.Errorf("verdict %v", err)
			} else if err != nil {
				fact.Error(t, err, test.verdict...)
			}
		})
	}
}

// record puts three snapshots into the parts' host: two of its own, then another host's.
func record(t *testing.T, p *env.Parts) {
	t.Helper()
	if err := p.Env.Host.EnsureDir(snapshots.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, node := range []string{p.Env.Config.Name, p.Env.Config.Name, "cp-9"} {
		r := snapshots.Record{Node: node, Taken: time.Date(2026, 11, 27, i, 0, 0, 0, time.UTC), Revision: 30 + int64(i), Etcd: "3.7.0"}
		path := filepath.Join(snapshots.Dir, snapshots.Name(r.Node, r.Taken))
		data, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		for path, data := range map[string][]byte{path: nil, snapshots.RecordPath(path): data} {
			if _, err := p.Env.Host.WriteSecret(path, data); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestLastUnreadable: another host's broken record is a warning, and the status still has the last snapshot.
func TestLastUnreadable(t *testing.T) {
	p := partsOf(t, members{all: three()})
	record(t, p)
	var said bytes.Buffer
	p.Env.UI = ui.NewLines(&said, &said)
	if _, err := p.Env.Host.WriteSecret(snapshots.Dir+"/etcd-cp-9-20261127T020000Z.db.json", []byte("{")); err != nil {
		t.Fatal(err)
	}
	s, err := look(t.Context(), p, false)
	if err != nil {
		t.Fatal(err)
	}
	s.addLast(p.Env, snapshots.Dir)
	fact.In(t, said.String(), "etcd-cp-9-20261127T020000Z.db.json")
	if s.LastSnapshot == nil || s.LastSnapshot.Revision != 31 {
		t.Errorf("%+v", s.LastSnapshot)
	}
}

// TestNobodyAnswers: without an answer it isn't known whether etcd needs an operator.
func TestNobodyAnswers(t *testing.T) {
	_, err := look(t.Context(), partsOf(t, members{err: errors.New("connection refused")}), false)
	if cli.CodeOf(err) != 1 {
		t.Errorf("exit code %d", cli.CodeOf(err))
	}
	fact.Error(t, err, "connection refused")
}

func TestMemberList(t *testing.T) {
	list := []etcd.Member{{ID: 0xa3, Cluster: 0xcdf8, PeerURL: "https://192.0.2.14:2380", Learner: true}}
	for _, h := range three() {
		list = append(list, h.Member)
	}
	var out bytes.Buffer
	g := &cli.Globals{Program: "slipway", Streams: cli.Streams{Out: &out}}
	l := newMembers(list)
	for _, form := range []string{"text", "json"} {
		if err := (&cli.OutputOptions{Form: form}).Print(g, l, l.table); err != nil {
			t.Fatal(err)
		}
	}
	golden.Check(t, "testdata/member-list.txt", out.String())
}

// TestExternalStatus: the remedies for an external etcd name no command of Slipway that refuses it.
func TestExternalStatus(t *testing.T) {
	e := members{all: three()}
	e.all[0].Status.Alarms = []etcd.Alarm{{Member: 0xa0, Kind: "NOSPACE"}}
	p := partsOf(t, e)
	for _, external := range []*config.ExternalEtcd{nil, {}} {
		p.Env.Config = p.Env.Config.With(func(n *config.Node) { n.Cluster.Etcd.External = external })
		s, err := look(t.Context(), p, false)
		if err != nil || len(s.Findings) != 1 {
			t.Fatalf("%+v, %v", s, err)
		}
		if own := strings.Contains(s.Findings[0].Remedy, "`slipway etcd defrag`"); own != (external == nil) {
			t.Errorf("external: %t, %s", external != nil, s.Findings[0])
		}
	}
}
