// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

const etcdPod = "/etc/kubernetes/manifests/etcd.yaml"

// survivor is control plane cp-1 of an etcd that has lost its quorum.
func survivor(t *testing.T, voters int) (*phasetest.Stage, *lostQuorum) {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	for name, pod := range map[string]runtime.Object{
		manifests.APIServerName: manifests.APIServer(s.Config, manifests.HostView{}),
		manifests.EtcdName:      manifests.Etcd(s.Config, manifests.HostView{}, nil),
	} {
		data, err := manifests.Encode(pod)
		phasetest.Fatal(t, err)
		s.Put(t, "/etc/kubernetes/manifests/"+name+".yaml", string(data))
	}
	phasetest.Fatal(t, leaveData(s.Root))
	q := newLostQuorum(voters)
	s.Etcd = q
	return s, q
}

// TestRefuses: as long as etcd may work again, or another member answers, nothing is recovered.
func TestRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		voters int
		change func(t *testing.T, s *phasetest.Stage, q *lostQuorum)
		Options
		facts []string // of the error; none if it's accepted
	}{
		"two of three are lost":  {3, nil, Options{}, nil},
		"one of two is lost":     {2, nil, Options{}, nil},
		"it's the only member":   {1, nil, Options{}, []string{"`slipway diagnose`", "`slipway etcd restore`"}},
		"the quorum works":       {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.works = true }, Options{Abandon: []string{"cp-2"}}, []string{"`slipway etcd status`"}},
		"a quorum may come back": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-3"] = 5 }, Options{Abandon: []string{"cp-3"}}, []string{"2", "3", "cp-3", "`slipway reset --force`", "--abandon=cp-3;", "entry 8", "5"}},
		"another one answers":    {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-3"] = 5 }, Options{Abandon: []string{"cp-2"}}, []string{"cp-3", "--abandon=cp-2,cp-3", "8"}},
		"it answers peers alone": {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-3"] = 0 }, Options{}, []string{"cp-3", "--abandon=cp-3"}},
		"it's further":           {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-2"] = 99 }, Options{}, []string{"cp-2", "99", "8"}},
		"expired certificates":   {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.accept("cp-2", "cp-3") }, Options{}, []string{"3 ", "cp-2", "cp-3", "expired", "`slipway reset --force`", "--abandon=cp-2,cp-3;"}},
		"an expired one of five": {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.accept("cp-3") }, Options{}, []string{"cp-3", "--abandon=cp-3"}},
		"a host refuses":         {3, refusing, Options{}, []string{"cp-2", "refused", "--abandon=cp-2", "entry 8"}},
		"a firewall rejects": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.fails["cp-2"], q.fails["cp-3"] = &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}, &net.OpError{Op: "dial", Err: unix.EHOSTUNREACH}
		}, Options{}, []string{"cp-2", "cp-3", "no route", "--abandon=cp-2,cp-3"}},
		"two hosts refuse": {3, func(t *testing.T, s *phasetest.Stage, q *lostQuorum) {
			t.Helper()
			refusing(t, s, q)
			q.fails["cp-3"] = q.fails["cp-2"]
		}, Options{}, []string{"--abandon=cp-2,cp-3"}},
		"a learner runs": {4, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.all[3].Learner = true
			q.accept("cp-4")
		}, Options{}, []string{"answer: cp-4.", "--abandon=cp-4"}},
		"its own has two addresses": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.all[0].PeerURL, q.all[0].MorePeerURLs = "https://192.0.2.10:2380", []string{phasetest.OwnPeer}
		}, Options{}, nil},
		"its own was updated": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.all[0].PeerURL = "https://192.0.2.10:2380" }, Options{}, nil},
		"a second address refuses": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.all[2].MorePeerURLs = []string{"https://198.51.100.13:2380"}
			q.fails["https://198.51.100.13:2380"] = &net.OpError{Op: "dial", Err: unix.ECONNREFUSED}
		}, Options{}, []string{"cp-3", "refused", "--abandon=cp-3"}},
		"another host has the address": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.foreign = "cp-2" }, Options{}, []string{"cp-2", "x509", "--abandon=cp-2"}},
		"another host, given up":       {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.foreign = "cp-2" }, Options{Abandon: []string{"cp-2"}}, nil},
		"a second address answers": {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.all[2].MorePeerURLs = []string{"https://198.51.100.13:2380"}
			q.fails["https://198.51.100.13:2380"] = etcd.AcceptedError{Err: errors.New("x509: certificate has expired")}
		}, Options{}, []string{"answer: cp-3.", "--abandon=cp-3"}},
		"a second address answers, another host the first": {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.foreign, q.all[2].MorePeerURLs = "cp-3", []string{"https://198.51.100.13:2380"}
			q.fails["https://198.51.100.13:2380"] = etcd.AcceptedError{Err: errors.New("x509: certificate has expired")}
		}, Options{}, []string{"answer: cp-3.", "--abandon=cp-3"}},
		"a host refuses for good":  {3, refusing, Options{Abandon: []string{"cp-2"}}, nil},
		"no CA to ask with":        {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.fails["cp-2"] = noCA }, Options{Abandon: []string{"cp-2"}}, []string{"etcd/ca.crt"}},
		"no CA to ask itself with": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.fails["cp-1"] = noCA }, Options{}, []string{"etcd/ca.crt"}},
		"no CA for health":         {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.health = noCA }, Options{}, []string{"etcd/ca.crt"}},
		"the API answers":          {3, func(_ *testing.T, s *phasetest.Stage, _ *lostQuorum) { s.Cluster = readyAPI{s.API} }, Options{}, []string{"`slipway etcd status`"}},
		"it's given up":            {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-3"] = 5 }, Options{Abandon: []string{"cp-3"}}, nil},
		"given up by its ID":       {5, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-3"] = 5 }, Options{Abandon: []string{"a2"}}, nil},
		"nobody of that name":      {3, nil, Options{Abandon: []string{"cp-9"}}, []string{"--abandon=cp-9", "cp-2", "cp-3"}},
		"this host is given up":    {3, nil, Options{Abandon: []string{"cp-1"}}, []string{"--abandon=cp-1"}},
		"this host's is a learner": {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.all[0].Learner = true }, Options{}, []string{"cp-1"}},
		"this host's has left":     {3, func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.all = q.all[1:] }, Options{}, []string{"cp-1", phasetest.OwnPeer}},
		"no etcd here":             {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) { t.Helper(); s.Remove(t, etcdPod) }, Options{}, []string{etcdPod}},
		"no log": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			s.Remove(t, member+"/wal/0000000000000000-0000000000000000.wal")
		}, Options{}, []string{"etcd"}},
		"external": {3, func(_ *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			s.Config = s.Config.With(func(n *config.Node) { n.Cluster.Etcd.External = &config.ExternalEtcd{} })
		}, Options{}, []string{"etcd"}},
		"a restore was interrupted": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: "etcd restore", From: "/srv/x.db", OldData: member}.Write(s.Env))
			s.Remove(t, etcdPod)
		}, Options{}, []string{"`slipway etcd restore /srv/x.db`"}},
		"a restore was interrupted, and has changed no data": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: "etcd restore", From: "/srv/x.db", OldData: member + ".before-restore-x", Manifest: s.Get(t, etcdPod)}.Write(s.Env))
			s.Remove(t, etcdPod)
		}, Options{}, nil},
		"interrupted, and the others are back": {3, func(t *testing.T, s *phasetest.Stage, q *lostQuorum) {
			t.Helper()
			interrupt(t, s, member+".before-recover-x")
			q.answer["cp-2"], q.answer["cp-3"] = 9, 9
		}, Options{}, []string{"cp-2", "cp-3", etcdPod, "slipway-etcd-data.yaml"}},
		"interrupted, and the API works": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			interrupt(t, s, member+".before-recover-x")
			s.Cluster = readyAPI{s.API}
		}, Options{}, []string{"`slipway etcd status`", etcdPod, "slipway-etcd-data.yaml"}},
		"interrupted": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			interrupt(t, s, member+".before-recover-x")
		}, Options{}, nil},
		"interrupted after the replacement, and the others are back": {3, func(t *testing.T, s *phasetest.Stage, q *lostQuorum) {
			t.Helper()
			interrupt(t, s, member)
			q.answer["cp-2"], q.answer["cp-3"] = 9, 9
		}, Options{}, nil},
		"another decision was made": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: command, OldData: member + ".before-recover-x", Manifest: s.Get(t, etcdPod)}.Write(s.Env))
			s.Remove(t, etcdPod)
		}, Options{Drop: true}, nil},
		"another decision was made, and carried out": {3, func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: command, OldData: member, Manifest: s.Get(t, etcdPod)}.Write(s.Env))
			s.Remove(t, etcdPod)
		}, Options{Drop: true}, []string{"`slipway etcd recover`"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, q := survivor(t, c.voters)
			if c.change != nil {
				c.change(t, s, q)
			}
			before := s.FakeHost.Orders()
			_, err := New(t.Context(), s.Env, c.Options)
			switch {
			case len(c.facts) == 0 && err != nil:
				t.Error(err)
			case len(c.facts) > 0 && err == nil:
				t.Error("no error")
			case err != nil:
				fact.In(t, err.Error()+"; "+fault.Remedy(err), c.facts...)
			}
			if did := s.FakeHost.Orders(); len(did) > len(before) {
				t.Errorf("it did %v", did[len(before):])
			}
		})
	}
}

// TestSummaryOfAbandoned: before members are given up for good, the operator learns what they say about their logs.
func TestSummaryOfAbandoned(t *testing.T) {
	s, q := survivor(t, 7)
	q.answer["cp-3"], q.answer["cp-4"] = 99, 5
	r, err := New(t.Context(), s.Env, Options{Abandon: []string{"cp-3", "a3"}})
	phasetest.Fatal(t, err)
	for range 2 {
		fact.In(t, r.Summary(), "entry 8", "cp-3", "99", "cp-4", "5")
		lines := strings.Split(r.Summary(), "\n")
		fact.In(t, lines[len(lines)-1], "cp-3, cp-4", "`slipway etcd recover --dry-run`")
		phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
	}
}

// interrupt leaves a recovery that was interrupted once etcd had stopped. If aside exists, it has moved data.
func interrupt(t *testing.T, s *phasetest.Stage, aside string) {
	t.Helper()
	phasetest.Fatal(t, node.EtcdJournal{Command: command, OldData: aside, Manifest: s.Get(t, etcdPod), Others: []string{"cp-2", "cp-3"}}.Write(s.Env))
	s.Remove(t, etcdPod)
}

var noCA = etcd.CredentialsError{Err: errors.New("open /etc/kubernetes/pki/etcd/ca.crt: permission denied")}

func refusing(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
	q.fails["cp-2"] = &net.OpError{Op: "dial", Err: unix.ECONNREFUSED}
}

// accept lets members accept connections whose TLS fails.
func (q *lostQuorum) accept(names ...string) {
	for _, name := range names {
		q.fails[name] = etcd.AcceptedError{Err: errors.New("x509: certificate has expired")}
	}
}

// readyAPI is an API that works, so its etcd does.
type readyAPI struct{ cluster.Cluster }

func (readyAPI) Read(context.Context, cluster.Query, func(io.Reader) error) error { return nil }

// deadAPI doesn't answer before its etcd works.
type deadAPI struct{ cluster.Cluster }

func (deadAPI) Read(context.Context, cluster.Query, func(io.Reader) error) error {
	return errors.New("connection refused")
}

// TestLooksAgain: whatever has changed while the operator thought about the question ends the recovery.
func TestLooksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, s *phasetest.Stage, q *lostQuorum)
		facts  []string
	}{
		"cp-3 came back":     {func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.answer["cp-3"] = 5 }, []string{"cp-3", "2"}},
		"the quorum is back": {func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) { q.works = true }, []string{"`slipway etcd status`"}},
		"another static Pod": {func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			s.Append(t, etcdPod, "# another")
		}, []string{"again"}},
		"another terminal": {func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			phasetest.Fatal(t, node.EtcdJournal{Command: command, OldData: member + ".before-recover-x", Manifest: s.Get(t, etcdPod)}.Write(s.Env))
			s.Remove(t, etcdPod)
		}, []string{"again"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, q := survivor(t, 3)
			r, err := New(t.Context(), s.Env, Options{})
			phasetest.Fatal(t, err)
			c.change(t, s, q)
			s.FakeHost.On.Now = func() time.Time { return time.Now().Add(time.Minute) }
			err = r.preflight(t.Context(), s.Env)
			if err == nil {
				t.Fatal("no error")
			}
			fact.In(t, err.Error()+"; "+fault.Remedy(err), c.facts...)
		})
	}
}

// TestResumes: a recovery that was interrupted names the other members once, and says what it does as long as no data has moved.
func TestResumes(t *testing.T) {
	s, _ := survivor(t, 3)
	interrupt(t, s, member+".before-recover-x")
	r, err := New(t.Context(), s.Env, Options{})
	phasetest.Fatal(t, err)
	phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
	fact.List(t, r.journal.Others, "cp-2", "cp-3")
	fact.In(t, r.Summary(), "cp-1", "cp-2", "cp-3", "8")
}

// TestChanges: one is no plural.
func TestChanges(t *testing.T) {
	if one, two := changes(1), changes(2); strings.HasSuffix(one, "s") || !strings.HasSuffix(two, "s") {
		t.Errorf("%q, %q", one, two)
	}
}

// TestHiddenCause: if neither etcd nor its data says who its members are, the operator learns both reasons.
func TestHiddenCause(t *testing.T) {
	s, q := survivor(t, 3)
	q.fails["cp-1"] = errors.New("x509: expired")
	s.Remove(t, member+"/snap/db")
	r := &Recovery{own: manifests.LocalMember{PeerURL: phasetest.OwnPeer}, replacement: node.EtcdDataReplacement{Data: member}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := r.members(ctx, s.Env)
	fact.Error(t, err, "x509: expired", member+"/snap/db")
}

// TestLogEnd: the operator learns what may not be committed, whether etcd runs or not.
func TestLogEnd(t *testing.T) {
	for name, c := range map[string]struct {
		runs, drop bool
		pending    int
	}{
		"it's down":               {false, false, last - applied},
		"it's down, and they go":  {false, true, committed - applied},
		"it runs":                 {true, false, last - committed}, // it adds what's committed when it stops
		"it runs, and they'll go": {true, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := survivor(t, 3)
			if c.runs {
				db, err := bbolt.Open(s.Root+member+"/snap/db", 0o600, &bbolt.Options{Timeout: time.Second})
				phasetest.Fatal(t, err)
				defer db.Close()
			}
			r, err := New(t.Context(), s.Env, Options{Drop: c.drop})
			phasetest.Fatal(t, err)
			r.end.size = 0
			want := logEnd{member: ownID, index: last, term: 2, committed: committed, uncertain: last - committed, pending: c.pending, running: c.runs}
			if r.end != want {
				t.Errorf("%+v, want %+v", r.end, want)
			}
			fact.In(t, r.Summary(), "cp-1", "cp-2", "cp-3", "8", "3", "--drop-uncommitted")
		})
	}
}

// TestAlarms: the alarm CORRUPT ends, and the operator learns of it before, from etcd or its data. A full etcd stays full.
func TestAlarms(t *testing.T) {
	for name, leave := range map[string]func(t *testing.T, s *phasetest.Stage, q *lostQuorum){
		"etcd answers": func(_ *testing.T, _ *phasetest.Stage, q *lostQuorum) {
			q.alarms = []etcd.Alarm{{Member: ownID + 1, Kind: "CORRUPT"}}
		},
		"its data": func(t *testing.T, s *phasetest.Stage, _ *lostQuorum) {
			t.Helper()
			phasetest.Fatal(t, hasAlarm(s.Root+member, pb.AlarmType_CORRUPT))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, q := survivor(t, 3)
			leave(t, s, q)
			r, err := New(t.Context(), s.Env, Options{})
			phasetest.Fatal(t, err)
			fact.In(t, r.Summary(), "CORRUPT")
			phasetest.Fatal(t, r.preflight(t.Context(), s.Env))
			fact.In(t, r.Summary(), "CORRUPT")
		})
	}
	s, q := survivor(t, 3)
	q.alarms = []etcd.Alarm{{Member: ownID, Kind: "NOSPACE"}}
	r, err := New(t.Context(), s.Env, Options{})
	phasetest.Fatal(t, err)
	fact.NotIn(t, r.Summary(), "CORRUPT")
	for cluster, full := range map[string]bool{"": false, "c": true} { // a plan has no cluster
		if r.journal.Cluster = cluster; r.isFull(t.Context(), s.Env) != full {
			t.Errorf("of cluster %q, it says %t", cluster, !full)
		}
	}
}

// TestReplayPod: the etcd that replays has data of its own, and nobody finds it.
func TestReplayPod(t *testing.T) {
	s, _ := survivor(t, 3)
	pod, err := replayPod([]byte(s.Get(t, etcdPod)), "/var/lib/etcd")
	phasetest.Fatal(t, err)
	decoded, err := manifests.DecodePod(pod)
	phasetest.Fatal(t, err)
	c := decoded.Spec.Containers[0]
	fact.List(t, c.Command[len(c.Command)-3:], "--data-dir=/var/lib/etcd/member.replay", "--listen-client-urls=https://127.0.0.77:2379", "--listen-peer-urls=https://127.0.0.77:2380")
	if decoded.Name != replayName || c.Name != replayName || c.LivenessProbe.HTTPGet.Path != "/readyz" || node.EtcdDataDir(pod) != "/var/lib/etcd/member.replay" {
		t.Errorf("%s", pod)
	}
}

// departed is an etcd whose other members, or some of them, list this host's no more. They're in another cluster if its ID isn't 0.
type departed struct {
	*lostQuorum
	answer  []string
	cluster uint64
	// committed is what they know to be committed; 0 if they don't say.
	committed uint64
	// replaced is set if others answer clients in their place.
	replaced bool
}

func (d departed) HealthOf(ctx context.Context, members []etcd.Member) []etcd.Health {
	found := d.lostQuorum.HealthOf(ctx, members)
	for i := range found {
		if slices.Contains(d.answer, found[i].Name) {
			found[i].Status.Committed, found[i].Answers, found[i].ServedCluster = d.committed, d.committed > 0 || d.replaced, d.cluster
		}
	}
	return found
}

func (d departed) Peers(ctx context.Context, urls []string) []etcd.Peer {
	found := d.lostQuorum.Peers(ctx, urls)
	for i := range found {
		for _, m := range d.all[1:] {
			if m.At(found[i].URL) && slices.Contains(d.answer, m.Name) {
				found[i] = etcd.Peer{URL: found[i].URL, Members: d.all[1:], Cluster: d.cluster}
			}
		}
	}
	return found
}

// TestFormerMember: a member that was removed doesn't have the others reset, nor a host on which etcd was restored or recovered. The
// operator can still give up one that couldn't make a quorum with this host's.
func TestFormerMember(t *testing.T) {
	for name, c := range map[string]struct {
		departed
		voters int
		Options
		facts, not []string
	}{
		"it was removed":                       {departed{answer: []string{"cp-2", "cp-3"}, cluster: 0xc}, 3, Options{}, []string{"cp-2, cp-3:", "`slipway reset --force` here"}, nil},
		"one of them answers":                  {departed{answer: []string{"cp-3"}, cluster: 0xc}, 5, Options{}, []string{"cp-3:", "`slipway reset --force` here"}, nil},
		"they are given up":                    {departed{answer: []string{"cp-2", "cp-3"}, cluster: 0xc}, 3, Options{Abandon: []string{"cp-2", "cp-3"}}, []string{"`slipway reset --force` here"}, nil},
		"restored there":                       {departed{answer: []string{"cp-2"}, cluster: 0xd}, 3, Options{}, []string{"cp-2:", "`slipway reset --force` here"}, nil},
		"it's behind":                          {departed{answer: []string{"cp-3"}, committed: 5}, 5, Options{}, []string{"entry 8", "cp-3", "5", "`slipway reset --force` here"}, nil},
		"it's ahead":                           {departed{answer: []string{"cp-3"}, committed: 99}, 5, Options{}, []string{"entry 8", "cp-3", "99", "compare"}, nil},
		"restored there, and given up":         {departed{answer: []string{"cp-2"}, cluster: 0xd}, 3, Options{Abandon: []string{"cp-2"}}, nil, nil},
		"restored there, and serves":           {departed{answer: []string{"cp-2"}, cluster: 0xd, replaced: true}, 3, Options{}, []string{"cp-2:", "`slipway reset --force` here"}, []string{"cp-2 ", "compare"}},
		"restored there, serves, and given up": {departed{answer: []string{"cp-2"}, cluster: 0xd, replaced: true}, 5, Options{Abandon: []string{"cp-2"}}, nil, []string{"cp-2 ", "COMPARE"}},
		"restored there, and not half of all":  {departed{answer: []string{"cp-2"}, cluster: 0xd, replaced: true}, 3, Options{Abandon: []string{"cp-2"}}, nil, []string{"cp-2 ", "COMPARE"}},
		"another answers clients in its place": {departed{answer: []string{"cp-3"}, cluster: 0xc, replaced: true}, 5, Options{}, []string{"cp-3 ", "compare"}, []string{" 0 "}},
	} {
		t.Run(name, func(t *testing.T) {
			s, q := survivor(t, c.voters)
			c.lostQuorum = q
			s.Etcd = c.departed
			r, err := New(t.Context(), s.Env, c.Options)
			if len(c.facts) == 0 {
				phasetest.Fatal(t, err)
				fact.NotIn(t, r.Summary(), c.not...)
				return
			}
			if err == nil {
				t.Fatal("no error")
			}
			told := err.Error() + "; " + fault.Remedy(err)
			fact.In(t, told, c.facts...)
			fact.NotIn(t, told, c.not...)
			if here, there := strings.Index(told, "`slipway reset --force` here"), strings.Index(told, "on their hosts"); there < here {
				t.Errorf("the others' reset comes first: %s", told)
			}
		})
	}
}

// TestClientsOfAnotherCluster: an etcd that answers clients, but no peers, counts unless it names another cluster. Its host isn't silent.
func TestClientsOfAnotherCluster(t *testing.T) {
	m := newLostQuorum(2).all[1]
	for _, c := range []struct {
		own, cluster uint64
		alive        bool
	}{{0xc, 0xd, false}, {0xc, 0xc, true}, {0xc, 0, true}, {0, 0xd, true}} {
		seen := observations{cluster: c.own, health: []etcd.Health{{Member: m, Answers: true, ServedCluster: c.cluster}}, peers: phasetest.Silent([]string{m.PeerURL})}
		if seen.alive(m) != c.alive || seen.silent(m) {
			t.Errorf("%+v: alive: %t, silent: %t", c, seen.alive(m), seen.silent(m))
		}
	}
}

// slow is an etcd whose lost hosts keep everybody waiting.
type slow struct{ *lostQuorum }

const patience = 5 * time.Second

func (s slow) Health(ctx context.Context) ([]etcd.Health, error) {
	time.Sleep(patience) // it looks for endpoints first
	return s.lostQuorum.Health(ctx)
}

func (s slow) HealthOf(ctx context.Context, members []etcd.Member) []etcd.Health {
	time.Sleep(patience)
	return s.lostQuorum.HealthOf(ctx, members)
}

func (s slow) Peers(ctx context.Context, urls []string) []etcd.Peer {
	if !slices.Contains(urls, phasetest.OwnPeer) {
		time.Sleep(patience)
	}
	return s.lostQuorum.Peers(ctx, urls)
}

// hangingAPI never answers.
type hangingAPI struct{ cluster.Cluster }

func (hangingAPI) Read(ctx context.Context, _ cluster.Query, _ func(io.Reader) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestLostHostsCostOneWait: all members and the API are asked at the same time, once.
func TestLostHostsCostOneWait(t *testing.T) {
	s, q := survivor(t, 5)
	s.Etcd, s.Cluster = slow{q}, hangingAPI{s.API}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := New(t.Context(), s.Env, Options{})
		phasetest.Fatal(t, err)
		if took := time.Since(began); took > patience {
			t.Errorf("it took %s", took)
		}
	})
}
