// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const (
	encrypts = `apiServer:
  extraArgs: [{name: encryption-provider-config, value: /etc/kubernetes/enc/config.yaml}]
  extraVolumes: [{name: enc, hostPath: /srv/enc, mountPath: /etc/kubernetes/enc}]
`
	secret         = "c2VjcmV0LWtleS1vZi0zMi1ieXRlcy1mb3ItdGVzdHM="
	encryptionText = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: new, secret: "` + secret + `"}, {name: old, secret: "` + secret + `"}]}
  - kms: {apiVersion: v2, name: vault, endpoint: "unix:///run/kms.sock"}
  - identity: {}
`
	dir = snapshots.Dir
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// members is an etcd whose snapshots have the content of a file.
type members struct {
	phasetest.FakeMembers
	health []etcd.Health
	file   string
	// content replaces the file's unless it's empty.
	content string
	asked   []string
	// running means that all answer at their peer URLs, elsewhere that something else does.
	running, elsewhere bool
	// looks is called while etcd sends a snapshot.
	looks func()
}

func (m *members) Health(context.Context) ([]etcd.Health, error) { return m.health, m.Fail["health"] }

func (m *members) Snapshot(_ context.Context, peerURL string, w io.Writer) (etcd.SnapshotInfo, error) {
	m.asked = append(m.asked, peerURL)
	data, err := []byte(m.content), error(nil)
	if m.content == "" {
		data, err = os.ReadFile(fixture.Path(m.file))
	}
	if err == nil {
		_, err = w.Write(data)
	}
	if m.looks != nil {
		m.looks()
	}
	return etcd.SnapshotInfo{}, err
}

func peer(name string) string { return "https://192.0.2.1" + strings.TrimPrefix(name, "cp-") + ":2380" }

func member(id uint64, leader uint64) etcd.Health {
	name := fmt.Sprintf("cp-%d", id)
	return etcd.Health{Member: etcd.Member{ID: id, Cluster: 0xabc, Name: name, PeerURL: peer(name)}, Answers: true,
		Status: etcd.Status{Version: "3.6.8", Leader: leader, Size: 20 << 20}}
}

// plane is control plane cp-1, of the three members of an etcd that cp-2 leads.
func plane(t *testing.T, cluster string) (*phasetest.Stage, *members) {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument+cluster)
	s.FakeHost.On.Now = func() time.Time { return noon }
	for _, ca := range []string{certs.CA, certs.FrontProxyCA, "etcd/ca"} {
		s.Put(t, "/etc/kubernetes/pki/"+ca+".crt", string(certs.EncodeCerts(fixture.Signed(t, fixture.Pair{}, ca, noon.AddDate(1, 0, 0)).Cert)))
	}
	for name, pod := range map[string]runtime.Object{
		manifests.APIServerName: manifests.APIServer(s.Config, manifests.HostView{}),
		manifests.EtcdName:      manifests.Etcd(s.Config, manifests.HostView{}, nil),
	} {
		data, err := manifests.Encode(pod)
		phasetest.Fatal(t, err)
		s.Put(t, "/etc/kubernetes/manifests/"+name+".yaml", string(data))
	}
	m := &members{file: "internal/etcd/testdata/snapshot-3.6.db", health: []etcd.Health{member(1, 2), member(2, 2), member(3, 2)}}
	s.Etcd = m
	return s, m
}

func TestSave(t *testing.T) {
	s, m := plane(t, encrypts)
	s.Put(t, "/srv/enc/config.yaml", encryptionText)
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Slipway: "v1.2.3"})
	phasetest.Fatal(t, err)
	fact.List(t, m.asked, phasetest.OwnPeer)
	fact.List(t, []string{path}, dir+"/etcd-cp-1-20261127T120000Z.db")
	info, err := os.Stat(s.Root + path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	got, err := snapshots.Read(s.Host, path)
	phasetest.Fatal(t, err)
	for name, pins := range got.Authorities {
		if len(pins) != 1 || !strings.HasPrefix(pins[0], "sha256:") {
			t.Errorf("%s: %q", name, pins)
		}
		got.Authorities[name] = nil
	}
	for _, key := range []string{"aescbc:new", "aescbc:old"} {
		if print := got.Encryption[0].Fingerprints[key]; len(print) != 32 {
			t.Errorf("%s: %q", key, print)
		}
	}
	got.Encryption[0].Fingerprints = nil
	want := snapshots.Record{
		TypeMeta: got.TypeMeta, Taken: noon, Node: "cp-1", Slipway: "v1.2.3", Size: info.Size(), SHA256: got.SHA256,
		ClusterID: "abc", Member: snapshots.Member{ID: "1", Name: "cp-1", PeerURL: phasetest.OwnPeer}, Members: got.Members,
		Revision: 6, Keys: 2, Kubernetes: "v1.37.2", Etcd: "3.6.8", Storage: "3.6.0",
		Authorities: map[string][]string{certs.CA: nil, certs.EtcdCA: nil, certs.FrontProxyCA: nil},
		Encryption:  []snapshots.Encryption{{Resources: []string{"secrets"}, Keys: []string{"aescbc:new", "aescbc:old", "kms:vault", "identity"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.Members) == 0 || got.Members[0].Name == "" {
		t.Errorf("members: %+v", got.Members)
	}
	fact.NotIn(t, s.Get(t, snapshots.RecordPath(path))+s.Said.String(), secret)
	if v, err := Verify(s.Env, path, nil); !v.Recorded || err != nil {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

// TestSaveTwice: another snapshot in the same second gets a name of its own.
func TestSaveTwice(t *testing.T) {
	for _, seal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := plane(t, "")
			s.FakeHost.On.Now = time.Now
			o := Options{Dir: dir}
			if seal {
				o.Recipients, _ = keyPair(t)
			}
			for range 2 {
				_, err := Save(t.Context(), s.Env, o)
				phasetest.Fatal(t, err)
			}
			list, unrecorded, err := snapshots.List(s.Host, dir)
			if err != nil || len(list) != 2 || len(unrecorded) > 0 || list[1].Taken.Sub(list[0].Taken) != time.Second {
				t.Errorf("%+v, %q, %v", list, unrecorded, err)
			}
		})
	}
}

// TestUnknown: a snapshot is also taken if the host's files don't say everything, and the record says so.
func TestUnknown(t *testing.T) {
	s, _ := plane(t, encrypts)
	s.Put(t, "/srv/enc/config.yaml", "resources: "+secret)
	s.Remove(t, "/etc/kubernetes/pki/front-proxy-ca.crt")
	path, err := Save(t.Context(), s.Env, Options{Dir: dir})
	phasetest.Fatal(t, err)
	got, err := snapshots.Read(s.Host, path)
	phasetest.Fatal(t, err)
	fact.List(t, got.Unknown, "front-proxy-ca.crt", "/srv/enc/config.yaml")
	fact.In(t, s.Said.String(), "front-proxy-ca.crt", "/srv/enc/config.yaml")
	fact.NotIn(t, strings.Join(got.Unknown, " ")+s.Said.String(), secret)

	s.Remove(t, "/etc/kubernetes/manifests/kube-apiserver.yaml")
	_, err = Save(t.Context(), s.Env, Options{Dir: dir}) // in the same second
	fact.Error(t, err, path)
	if v, err := Verify(s.Env, path, nil); !v.Recorded || err != nil {
		t.Errorf("verify: %+v, %v", v, err)
	}
	s.FakeHost.On.Now = func() time.Time { return noon.Add(time.Second) }
	path, err = Save(t.Context(), s.Env, Options{Dir: dir})
	phasetest.Fatal(t, err)
	got, err = snapshots.Read(s.Host, path)
	if err != nil || len(got.Unknown) != 1 || got.Revision != 6 {
		t.Errorf("without a static Pod: %+v, %v", got, err)
	}
}

// TestSource: the leader is saved only if no other voter is healthy and up to date, and an unhealthy member only if none is.
func TestSource(t *testing.T) {
	down := func(h etcd.Health) etcd.Health { h.Answers, h.Err = false, errors.New("connection refused"); return h }
	leaderless := func(h etcd.Health) etcd.Health { h.Err = errors.New("no leader"); return h }
	learner := func(h etcd.Health) etcd.Health { h.Learner = true; return h }
	corrupted := func(h etcd.Health) etcd.Health {
		h.Status.Alarms = []etcd.Alarm{{Member: h.ID, Kind: "CORRUPT"}}
		return h
	}
	at := func(h etcd.Health, applied uint64) etcd.Health {
		h.Status.Committed, h.Status.Applied = 90_000, applied
		return h
	}
	for name, c := range map[string]struct {
		health       []etcd.Health
		want, inTurn string
	}{
		"this host's follower":      {[]etcd.Health{member(1, 2), member(2, 2), member(3, 2)}, "cp-1", "cp-1"},
		"this host leads":           {[]etcd.Health{member(1, 1), member(2, 1), member(3, 1)}, "cp-2", "cp-2"},
		"only the leader is left":   {[]etcd.Health{member(1, 1), down(member(2, 1))}, "cp-1", "cp-1"},
		"this host's is down":       {[]etcd.Health{down(member(1, 2)), member(2, 2), member(3, 2)}, "cp-3", "cp-3"},
		"this host's has no leader": {[]etcd.Health{leaderless(member(1, 0)), member(2, 2), member(3, 2)}, "cp-3", "cp-3"},
		"this host's is a learner":  {[]etcd.Health{learner(member(1, 2)), member(2, 2)}, "cp-2", "cp-2"},
		"this host's is corrupt":    {[]etcd.Health{corrupted(member(1, 2)), member(2, 2)}, "cp-2", "cp-2"},
		"this host's lags":          {[]etcd.Health{at(member(1, 2), 80_000), at(member(2, 2), 90_000), at(member(3, 2), 85_001)}, "cp-3", "cp-3"},
		"all followers lag":         {[]etcd.Health{at(member(1, 2), 80_000), at(member(2, 2), 90_000), at(member(3, 2), 84_999)}, "cp-2", "cp-2"},
		"all lag":                   {[]etcd.Health{at(member(1, 2), 80_000), at(member(2, 2), 80_000)}, "cp-1", "cp-1"},
		"a lone survivor":           {[]etcd.Health{leaderless(member(1, 0)), down(member(2, 0)), down(member(3, 0))}, "cp-1", ""},
		"nobody answers":            {[]etcd.Health{down(member(1, 0)), down(member(2, 0))}, "", ""},
		"only a learner answers":    {[]etcd.Health{learner(member(1, 0)), down(member(2, 0))}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for inTurn, want := range map[bool]string{false: c.want, true: c.inTurn} {
				s, m := plane(t, "")
				m.health = c.health
				got, err := chooseSource(t.Context(), s.Env, inTurn)
				if want == "" {
					fact.Error(t, err, "cp-1")
				} else if err != nil || got.Name != want {
					t.Errorf("in turn: %v: %s, %v; want %s", inTurn, got.Name, err, want)
				}
			}
		})
	}
}

// TestSourceLags: a snapshot of a member that's far behind is better than none, and says so.
func TestSourceLags(t *testing.T) {
	s, m := plane(t, "")
	m.health = []etcd.Health{member(1, 1)}
	for applied, warned := range map[uint64]bool{85_000: false, 80_000: true} {
		s.Said.Reset()
		m.health[0].Status.Committed, m.health[0].Status.Applied = 90_000, applied
		_, err := chooseSource(t.Context(), s.Env, true)
		phasetest.Fatal(t, err)
		if strings.Contains(s.Said.String(), "10000 entries") != warned {
			t.Errorf("applied %d: %s", applied, s.Said.String())
		}
	}
}

// TestSaveRefuses: without space, an etcd of its own or a whole snapshot, nothing is left behind.
func TestSaveRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(*phasetest.Stage, *members)
		facts []string
	}{
		"a full disk": {func(s *phasetest.Stage, _ *members) {
			s.FakeHost.Has.Space["/"] = host.Space{Free: 10<<30 + 19<<20, Total: 100 << 30, FreeInodes: 1, TotalInodes: 1}
		}, []string{"10 %", "`slipway etcd snapshot prune`", dir}},
		"no snapshot": {func(_ *phasetest.Stage, m *members) { m.file = "go.mod" }, []string{dir, "etcd-cp-1-20261127T120000Z.db"}},
		"external": {func(s *phasetest.Stage, _ *members) {
			s.Config = s.Config.With(func(n *config.Node) {
				n.Cluster.Etcd.External = &config.ExternalEtcd{Endpoints: []string{"https://192.0.2.99:2379"}}
			})
		}, []string{"https://192.0.2.99:2379", "`etcdctl snapshot save`"}},
		"no answer": {func(_ *phasetest.Stage, m *members) {
			m.Fail = map[string]error{"health": errors.New("192.0.2.11: connection refused")}
		}, []string{"192.0.2.11"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := plane(t, "")
			c.fault(s, m)
			_, err := Save(t.Context(), s.Env, Options{Dir: dir})
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fixture.Told(err), c.facts...)
			if entries, _ := os.ReadDir(s.Root + dir); len(entries) > 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// TestInTurn: hosts that start together save etcd one after another, each within its own twenty minutes.
func TestInTurn(t *testing.T) {
	var began []time.Time
	for _, own := range []string{"cp-1", "cp-2", "cp-3"} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := plane(t, "")
			s.FakeHost.On.Now = time.Now
			s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", strings.ReplaceAll(s.Get(t, "/etc/kubernetes/manifests/etcd.yaml"), phasetest.OwnPeer, peer(own)))
			path, err := Save(t.Context(), s.Env, Options{Dir: dir, InTurn: true})
			phasetest.Fatal(t, err)
			record, err := snapshots.Read(s.Host, path)
			phasetest.Fatal(t, err)
			began = append(began, record.Taken)
		})
	}
	for i, a := range began {
		for _, b := range began[i+1:] {
			if d := a.Sub(b).Abs(); d < 20*time.Minute || d > 40*time.Minute {
				t.Errorf("saved at %v", began)
			}
		}
	}

	s, m := plane(t, "")
	m.health = m.health[1:]
	_, err := Save(t.Context(), s.Env, Options{Dir: dir, InTurn: true})
	fact.Error(t, err, phasetest.OwnPeer)

	s, m = plane(t, "")
	s.FakeHost.On.Now = func() time.Time { return noon.Add(15 * time.Minute) }
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("SIGTERM"))
	_, err = Save(ctx, s.Env, Options{Dir: dir, InTurn: true})
	fact.Error(t, err, "SIGTERM")
	if len(m.asked) > 0 {
		t.Errorf("saved: %v", m.asked)
	}
}

// booting is an etcd that doesn't answer at first.
type booting struct {
	*members
	refuses int
}

func (b *booting) Health(ctx context.Context) ([]etcd.Health, error) {
	switch b.refuses--; {
	case b.refuses > 1:
		return nil, errors.New("connection refused")
	case b.refuses > 0:
		starting := member(1, 0)
		starting.Err = errors.New("no leader")
		return []etcd.Health{starting}, nil
	}
	return b.members.Health(ctx)
}

// TestInTurnAtBoot: a timer that was due while the host was off fires before etcd runs. It waits, but not for ever.
func TestInTurnAtBoot(t *testing.T) {
	for refuses, facts := range map[int][]string{5: nil, 1_000_000: {"connection refused"}} {
		synctest.Test(t, func(t *testing.T) {
			s, m := plane(t, "")
			m.health = m.health[:1]
			s.Etcd = &booting{members: m, refuses: refuses}
			_, err := Save(t.Context(), s.Env, Options{Dir: dir, InTurn: true})
			fact.Error(t, err, facts...)
			fact.In(t, s.Said.String(), "connection refused")
		})
	}
}

// TestTurnSuffices: a member that begins as late as it may has saved 8 GiB before the next one may begin.
func TestTurnSuffices(t *testing.T) {
	last := noon
	for snapshots.UntilTurn(last, 0, 2) == 0 {
		last = last.Add(time.Second)
	}
	if left := snapshots.UntilTurn(last, 1, 2); left < (8<<30)/time.Duration(pace)*time.Second {
		t.Errorf("only %s are left", left)
	}
}

// TestUnitEnds: if an upload hangs, the timer's service ends before its next run, and nobody's turn is too late for it.
func TestUnitEnds(t *testing.T) {
	const members, firings = 7, 6 * time.Hour
	unit := fixture.Get(t, fixture.Path("packaging/systemd"), "slipway-etcd-snapshot.service")
	_, limit, _ := strings.Cut(unit, "\nTimeoutStartSec=")
	limit, _, _ = strings.Cut(limit, "\n")
	ends, err := time.ParseDuration(limit)
	phasetest.Fatal(t, err)
	latest := time.Duration(0)
	for at := noon; at.Before(noon.Add(firings)); at = at.Add(time.Minute) {
		latest = max(latest, snapshots.UntilTurn(at, 0, members))
	}
	if ends >= firings || ends < latest+2*time.Hour {
		t.Errorf("it ends after %s, and a turn may begin after %s", ends, latest)
	}
}

// saved takes a snapshot every six hours until noon.
func saved(t *testing.T, s *phasetest.Stage, count int) (paths []string) {
	t.Helper()
	for i := range count {
		s.FakeHost.On.Now = func() time.Time { return noon.Add(-6 * time.Hour * time.Duration(count-1-i)) }
		path, err := Save(t.Context(), s.Env, Options{Dir: dir})
		phasetest.Fatal(t, err)
		paths = append(paths, path)
	}
	return paths
}

func TestPrune(t *testing.T) {
	s, _ := plane(t, "")
	paths := saved(t, s, 7)
	s.Put(t, dir+"/others.db", "database")
	s.Put(t, dir+"/others.db.json", "{")
	acting, planned := s.Host, &phasetest.Record{}
	s.Host = plan.NewOverlay(acting, planned.OnHost)
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 3, Days: 1}))
	s.Host = acting
	if titles := planned.Titles(); len(titles) != 8 || len(fixture.Entries(t, s.Root+dir)) != 16 {
		t.Errorf("planned: %q", titles)
	}
	fact.In(t, strings.Join(planned.Titles(), "\n"), paths[0], snapshots.RecordPath(paths[0]), paths[3])
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 3, Days: 1}))
	fact.In(t, s.Said.String(), dir+"/others.db.json")
	var want []string
	for _, path := range paths[4:] {
		want = append(want, filepath.Base(path), filepath.Base(path)+".json")
	}
	if diff := cmp.Diff(append(want, "others.db", "others.db.json"), fixture.Entries(t, s.Root+dir)); diff != "" {
		t.Errorf("(-want +stay):\n%s", diff)
	}
	if err := Prune(t.Context(), s.Env, dir, snapshots.Policy{}); err == nil {
		t.Error("nothing would stay")
	}
}

// TestPruneOfClone: snapshots of another cluster, which has a Node of the same name, stay. So do all while it's not known which are its own.
func TestPruneOfClone(t *testing.T) {
	s, _ := plane(t, "")
	paths := saved(t, s, 6)
	for i, path := range paths {
		changeRecord(t, s, path, func(r *snapshots.Record) { r.ClusterUID = []string{"", "own", "another"}[i%3] })
	}
	one := snapshots.Policy{Newest: 1}
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, one))
	if entries := fixture.Entries(t, s.Root+dir); len(entries) != 2*len(paths) {
		t.Errorf("without an API: %v", entries)
	}
	s.Cluster = namespaced{s.Cluster, "own"}
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, one))
	var stay []string
	for _, i := range []int{2, 4, 5} {
		stay = append(stay, filepath.Base(paths[i]), filepath.Base(paths[i])+".json")
	}
	if diff := cmp.Diff(stay, fixture.Entries(t, s.Root+dir)); diff != "" {
		t.Errorf("(-want +stay):\n%s", diff)
	}
}

// TestPruneOfAnother: while the API is down, another cluster's snapshots don't pass for this one's, nor does one of an unknown cluster.
func TestPruneOfAnother(t *testing.T) {
	s, _ := plane(t, "")
	paths := saved(t, s, 6)
	for i, path := range paths {
		changeRecord(t, s, path, func(r *snapshots.Record) {
			switch r.ClusterUID = ""; i {
			case 0, 1:
				r.ClusterUID, r.Authorities[certs.CA] = "another", []string{"sha256:0"}
			case 2:
				delete(r.Authorities, certs.CA)
			}
		})
	}
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 1}))
	var stay []string
	for _, i := range []int{0, 1, 2, 5} {
		stay = append(stay, filepath.Base(paths[i]), filepath.Base(paths[i])+".json")
	}
	if diff := cmp.Diff(stay, fixture.Entries(t, s.Root+dir)); diff != "" {
		t.Errorf("(-want +stay):\n%s", diff)
	}
	fact.In(t, s.Said.String(), paths[2])

	s.Remove(t, "/etc/kubernetes/pki/ca.crt")
	fact.Error(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 1}), "/etc/kubernetes/pki/ca.crt")
}

// TestPruneWithoutAPIServer: a host with etcd alone knows no CA, and its records have none.
func TestPruneWithoutAPIServer(t *testing.T) {
	s, _ := plane(t, "")
	paths := saved(t, s, 3)
	for i, path := range paths {
		changeRecord(t, s, path, func(r *snapshots.Record) {
			if r.ClusterUID = ""; i > 0 {
				delete(r.Authorities, certs.CA)
			}
		})
	}
	s.Remove(t, "/etc/kubernetes/manifests/kube-apiserver.yaml")
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 1}))
	var stay []string
	for _, i := range []int{0, 2} {
		stay = append(stay, filepath.Base(paths[i]), filepath.Base(paths[i])+".json")
	}
	if diff := cmp.Diff(stay, fixture.Entries(t, s.Root+dir)); diff != "" {
		t.Errorf("(-want +stay):\n%s", diff)
	}
}

// TestPruneVerifies: a schedule notices a damaged newest snapshot even while nothing is surplus. One of the future isn't the newest.
func TestPruneVerifies(t *testing.T) {
	s, _ := plane(t, "")
	paths := saved(t, s, 2)
	future := noon.AddDate(1, 0, 0)
	s.FakeHost.On.Now = func() time.Time { return future }
	ahead, err := Save(t.Context(), s.Env, Options{Dir: dir})
	phasetest.Fatal(t, err)
	s.FakeHost.On.Now = func() time.Time { return noon }
	phasetest.Fatal(t, Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 5}))
	fact.In(t, s.Said.String(), ahead)
	s.Put(t, paths[1], s.Get(t, paths[1])[512:])
	err = Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 5})
	if err == nil {
		t.Fatal("no error")
	}
	fact.In(t, fixture.Told(err), paths[1])
}

// TestPruneDamaged: while the newest snapshot isn't whole, all stay.
func TestPruneDamaged(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, s *phasetest.Stage, path string){
		"changed": func(t *testing.T, s *phasetest.Stage, path string) {
			s.Put(t, path, strings.Replace(s.Get(t, path), "a", "b", 1))
		},
		"shortened": func(t *testing.T, s *phasetest.Stage, path string) { s.Put(t, path, s.Get(t, path)[512:]) },
		"lost":      func(t *testing.T, s *phasetest.Stage, path string) { s.Put(t, path, "") },
		"another, whole one": func(t *testing.T, s *phasetest.Stage, path string) {
			s.Put(t, path, fixture.Get(t, fixture.Path("internal/etcd"), "testdata/snapshot-3.7.db"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := plane(t, "")
			paths := saved(t, s, 4)
			newest := paths[len(paths)-1]
			damage(t, s, newest)
			err := Prune(t.Context(), s.Env, dir, snapshots.Policy{Newest: 1})
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, fixture.Told(err), newest, snapshots.RecordPath(newest), "`slipway etcd snapshot save`")
			if entries := fixture.Entries(t, s.Root+dir); len(entries) != 2*len(paths) {
				t.Errorf("left: %v", entries)
			}
			if v, err := Verify(s.Env, newest, nil); !v.Recorded || err == nil {
				t.Errorf("verify: %+v, %v", v, err)
			}
		})
	}
}

// TestVerifyUnrecorded: etcdctl's snapshots have no record.
func TestVerifyUnrecorded(t *testing.T) {
	s, _ := plane(t, "")
	s.Put(t, "/srv/a.db", fixture.Get(t, fixture.Path("internal/etcd"), "testdata/snapshot-3.7.db"))
	v, err := Verify(s.Env, "/srv/a.db", nil)
	if err != nil || v.Recorded || v.Revision == 0 {
		t.Errorf("%+v, %v", v, err)
	}
	s.Put(t, "/srv/b.db", "no database")
	_, err = Verify(s.Env, "/srv/b.db", nil)
	fact.Error(t, err, "/srv/b.db")
	s.Put(t, "/srv/a.db.json", "{")
	_, err = Verify(s.Env, "/srv/a.db", nil)
	fact.Error(t, err, "/srv/a.db.json")
}
