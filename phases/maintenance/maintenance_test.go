// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// members are three members of etcd, of which cp-2 leads. cp-1 is the stage's own.
type members struct {
	etcd.Etcd
	all   []etcd.Health
	did   []string
	fail  map[string]error
	inUse int64 // after a compaction
	// raises is set if an alarm comes back at once.
	raises bool
	// rewritten is a voter whose database was rewritten, and that nobody has waited for.
	rewritten string
}

const gib = 1 << 30

func newMembers() *members {
	m := &members{fail: map[string]error{}, inUse: gib / 2}
	for i := range uint64(3) {
		m.all = append(m.all, etcd.Health{
			Member: etcd.Member{ID: 0xa1 + i, Name: fmt.Sprintf("cp-%d", i+1), PeerURL: fmt.Sprintf("https://192.0.2.1%d:2380", i+1),
				ClientURLs: []string{fmt.Sprintf("https://192.0.2.1%d:2379", i+1)}},
			Answers: true, Status: etcd.Status{Version: "3.7.0", Leader: 0xa2, Committed: 9, Applied: 9, Revision: 50, Size: gib, InUse: gib / 2, Quota: 2 * gib},
		})
	}
	return m
}

func (m *members) do(verb, peerURL string) (*etcd.Health, error) {
	i := slices.IndexFunc(m.all, func(h etcd.Health) bool { return h.PeerURL == peerURL })
	if i < 0 {
		return nil, nil
	}
	m.did = append(m.did, strings.TrimSpace(verb+" "+m.all[i].Label()))
	return &m.all[i], m.fail[verb]
}

func (m *members) Members(context.Context) ([]etcd.Member, error) { return etcd.MembersOf(m.all), nil }

func (m *members) Health(context.Context) ([]etcd.Health, error) {
	return slices.Clone(m.all), m.fail["health"]
}

func (m *members) Leave(_ context.Context, peerURL string) (bool, error) {
	h, err := m.do("remove", peerURL)
	if err == nil && h != nil {
		m.all = slices.DeleteFunc(m.all, func(h etcd.Health) bool { return h.PeerURL == peerURL })
	}
	return h != nil, err
}

func (m *members) MoveLeader(_ context.Context, id etcd.Identity) (bool, error) {
	peerURL := id.PeerURLs[0]
	i := slices.IndexFunc(m.all, func(h etcd.Health) bool { return h.PeerURL == peerURL })
	next := slices.IndexFunc(m.all, func(h etcd.Health) bool { return h.PeerURL != peerURL && !h.Learner })
	if !m.all[i].Leads() || next < 0 {
		return false, nil
	}
	m.did = append(m.did, "lead "+m.all[next].Name)
	for j := range m.all {
		m.all[j].Status.Leader = m.all[next].ID
	}
	return true, nil
}

func (m *members) Defragment(_ context.Context, peerURL string) error {
	if m.rewritten != "" {
		return errors.Errorf("%s may not work yet", m.rewritten)
	}
	h, err := m.do("defragment", peerURL)
	if err == nil && h.Learner {
		return errors.New("etcdserver: rpc not supported for learner")
	}
	if err == nil {
		h.Status.Size = h.Status.InUse
		m.rewritten = peerURL
	}
	return err
}

func (m *members) CaughtUp(_ context.Context, id etcd.Identity) error {
	peerURL := id.PeerURLs[0]
	if m.rewritten == peerURL {
		m.rewritten = ""
	}
	return nil
}

func (m *members) Compact(_ context.Context, revision int64) error {
	m.did = append(m.did, fmt.Sprintf("compact %d", revision))
	for i := range m.all {
		m.all[i].Status.InUse = m.inUse
	}
	return m.fail["compact"]
}

func (m *members) Disarm(context.Context) error {
	m.did = append(m.did, "disarm")
	for i := range m.all {
		if !m.raises {
			m.all[i].Status.Alarms = nil
		}
	}
	return m.fail["disarm"]
}

// kubelets answer with the free space of their Nodes' file systems, of 100 GiB each.
type kubelets struct {
	cluster.Cluster
	free map[string]int64
}

func (k kubelets) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	name, _, _ := strings.Cut(strings.TrimPrefix(q.Path, "/api/v1/nodes/"), "/")
	free, known := k.free[name]
	if !known || q.Path != "/api/v1/nodes/"+name+"/proxy/stats/summary" {
		return errors.Errorf("%s: no such node", q.Path)
	}
	return take(strings.NewReader(fmt.Sprintf(`{"node": {"fs": {"availableBytes": %d, "capacityBytes": %d}}}`, free, int64(100*gib))))
}

// stage is cp-1, with a static Pod of etcd.
func stage(t *testing.T, m *members) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	pod, err := yaml.Marshal(manifests.Etcd(s.Config, manifests.HostView{}, nil))
	if err != nil {
		t.Fatal(err)
	}
	s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", string(pod))
	s.Put(t, "/var/lib/etcd/member/snap/db", "")
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(0xa1, 0xc, true))
	s.Config.Timeouts.EtcdAPICall = 50 * time.Millisecond // nobody becomes healthy meanwhile
	s.FakeHost.Has.Space["/"] = host.Space{Free: 50 * gib, Total: 100 * gib}
	s.Etcd, s.Cluster = m, kubelets{s.API, map[string]int64{"cp-2": 50 * gib, "cp-3": 50 * gib}}
	return s
}

func TestRemoval(t *testing.T) {
	down := errors.New("connection refused")
	for name, row := range map[string]struct {
		which  string
		change func(m *members)
		did    []string
		facts  []string // of the error
	}{
		"by name":       {"cp-3", func(m *members) { m.all[2].Err, m.all[2].Answers = down, false }, []string{"remove cp-3"}, nil},
		"by ID":         {"a3", func(m *members) { m.all[2].Err = down }, []string{"remove cp-3"}, nil},
		"by hex ID":     {"0xA3", func(m *members) { m.all[2].Err = down }, []string{"remove cp-3"}, nil},
		"by peer URL":   {"https://192.0.2.13:2380", func(m *members) { m.all[2].Name, m.all[2].Err = "", down }, []string{"remove https://192.0.2.13:2380"}, nil},
		"a healthy one": {"cp-2", func(*members) {}, []string{"remove cp-2"}, nil},
		"a learner":     {"cp-3", func(m *members) { m.all[2].Learner, m.all[2].Err = true, down }, []string{"remove cp-3"}, nil},
		"needed":        {"cp-2", func(m *members) { m.all[2].Err = down }, nil, []string{"cp-2", "cp-1 works; cp-3", "connection refused"}},
		"no quorum": {"cp-3", func(m *members) {
			m.all[0].Err, m.all[1].Err, m.all[2].Err = errors.New("it has no leader"), down, down
		}, nil, []string{"cp-3", "none works"}},
		"its own, of two URLs": {"cp-1", func(m *members) {
			m.all[0].PeerURL, m.all[0].MorePeerURLs = "https://192.0.2.10:2380", []string{phasetest.OwnPeer}
		}, nil, []string{"cp-1", "this host's own"}},
		"its own, moved":  {"cp-1", func(m *members) { m.all[0].PeerURL = "https://192.0.2.10:2380" }, nil, []string{"cp-1", "this host's own"}},
		"its own":         {"cp-1", func(*members) {}, nil, []string{"cp-1"}},
		"the last":        {"cp-2", func(m *members) { m.all = m.all[1:2] }, nil, []string{"cp-2"}},
		"unknown":         {"cp-4", func(*members) {}, nil, []string{`"cp-4"`}},
		"two of a name":   {"cp-2", func(m *members) { m.all[2].Name = "cp-2" }, nil, []string{"(a2)", "(a3)"}},
		"nobody answers":  {"cp-3", func(m *members) { m.fail["health"] = down }, nil, []string{"connection refused"}},
		"etcd is against": {"cp-3", func(m *members) { m.fail["remove"] = errors.New("unhealthy cluster") }, []string{"remove cp-3"}, []string{"unhealthy cluster", "cp-1, cp-2, cp-3 work"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMembers()
			row.change(m)
			s := stage(t, m)
			r, err := NewRemoval(t.Context(), s.Env, row.which)
			if err == nil {
				err = step.Run(t.Context(), s.Env, r.Phases(), step.Options{})
			}
			if fact.Error(t, err, row.facts...); !slices.Equal(m.did, row.did) {
				t.Errorf("did %q, want %q", m.did, row.did)
			}
		})
	}
}

// TestRemovalLooksAgain: a member that's needed by the time the question is answered stays.
func TestRemovalLooksAgain(t *testing.T) {
	m := newMembers()
	m.all[2].Err = errors.New("connection refused")
	s := stage(t, m)
	r, err := NewRemoval(t.Context(), s.Env, "cp-3")
	phasetest.Fatal(t, err)
	if fact.In(t, r.Summary(), "cp-3", "a3"); !strings.Contains(r.Summary(), "RUNS") {
		t.Errorf("it does not say that cp-3 answers: %s", r.Summary())
	}
	m.all[1].Err = errors.New("connection refused")
	err = step.Run(t.Context(), s.Env, r.Phases(), step.Options{})
	if fact.Error(t, err, "cp-3", "connection refused"); m.did != nil {
		t.Errorf("did %q", m.did)
	}
}

// TestRemovalOfReplaced: a member that takes the place of the former at the same address stays.
func TestRemovalOfReplaced(t *testing.T) {
	m := newMembers()
	m.all[2].Err = errors.New("connection refused")
	s := stage(t, m)
	r, err := NewRemoval(t.Context(), s.Env, "cp-3")
	phasetest.Fatal(t, err)
	m.all[2].ID, m.all[2].Err = 0xb3, nil
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, r.Phases(), step.Options{}))
	if m.did != nil {
		t.Errorf("did %q", m.did)
	}
}

func TestDefragmentation(t *testing.T) {
	inOrder := []string{"defragment cp-1", "defragment cp-3", "lead cp-1", "defragment cp-2"}
	withoutLearner := []string{"defragment cp-1", "lead cp-1", "defragment cp-2"}
	full := func(m *members) {
		for i := range m.all {
			m.all[i].Status.Size, m.all[i].Status.InUse, m.all[i].Status.Alarms = 2*gib, 2*gib, []etcd.Alarm{{Member: 0xa3, Kind: "NOSPACE"}}
		}
	}
	rescued := slices.Concat([]string{"compact 50"}, inOrder, []string{"disarm"})
	for name, row := range map[string]struct {
		all    bool
		change func(m *members, s *phasetest.Stage)
		did    []string
		facts  []string // of the error
	}{
		"the leader comes last": {false, func(*members, *phasetest.Stage) {}, inOrder, nil},
		"less than 40 % free": {false, func(m *members, _ *phasetest.Stage) {
			m.all[0].Status.InUse, m.all[1].Status.InUse = gib/10*6+10, gib/10*6+10
		}, []string{"defragment cp-3"}, nil},
		"less than 40 % free, near the quota": {false, func(m *members, _ *phasetest.Stage) {
			m.all[0].Status.Size, m.all[0].Status.InUse = gib/10*17, gib/10*17*65/100
			m.all[1].Status.Size, m.all[1].Status.InUse = gib/10*17, gib/10*17
		}, []string{"defragment cp-1", "defragment cp-3"}, nil},
		"less than 100 MiB free": {false, func(m *members, _ *phasetest.Stage) {
			for i := range m.all {
				m.all[i].Status.Size, m.all[i].Status.InUse = 120<<20, 21<<20
			}
		}, nil, nil},
		"all": {true, func(m *members, _ *phasetest.Stage) {
			for i := range m.all {
				m.all[i].Status.Size, m.all[i].Status.InUse = 30<<20, 21<<20
			}
		}, inOrder, nil},
		"a single member": {false, func(m *members, _ *phasetest.Stage) {
			m.all = m.all[:1]
			m.all[0].Status.Leader = 0xa1
		}, []string{"defragment cp-1"}, nil},
		"a learner": {false, func(m *members, _ *phasetest.Stage) { m.all[2].Learner = true }, withoutLearner, nil},
		"a learner alone has free space": {false, func(m *members, _ *phasetest.Stage) {
			m.all[2].Learner = true
			m.all[0].Status.InUse, m.all[1].Status.InUse = gib, gib
		}, nil, nil},
		"one is down": {false, func(m *members, _ *phasetest.Stage) { m.all[2].Err = errors.New("connection refused") }, nil,
			[]string{"cp-1, cp-2 work; cp-3", "connection refused"}},
		"one is damaged": {true, func(m *members, _ *phasetest.Stage) {
			m.all[1].Status.Alarms = []etcd.Alarm{{Member: 0xa3, Kind: "CORRUPT"}}
		}, nil,
			[]string{"CORRUPT"}},
		"the disk here is full": {false, func(_ *members, s *phasetest.Stage) {
			s.FakeHost.Has.Space["/"] = host.Space{Free: 10*gib + gib/2 - 1, Total: 100 * gib}
		}, nil, []string{"/var/lib/etcd"}},
		"a disk there is full": {false, func(_ *members, s *phasetest.Stage) {
			s.Cluster = kubelets{s.API, map[string]int64{"cp-2": 50 * gib, "cp-3": 10*gib + gib/2 - 1}}
		}, inOrder[:1], []string{"cp-3", "512"}},
		"a kubelet does not answer": {false, func(_ *members, s *phasetest.Stage) {
			s.Cluster = kubelets{s.API, map[string]int64{"cp-2": 50 * gib}}
		}, slices.Concat(inOrder[:1], inOrder[2:]), []string{"cp-3"}},
		"it fails": {false, func(m *members, _ *phasetest.Stage) { m.fail["defragment"] = errors.New("transport is closing") },
			inOrder[:1], []string{"is closing", "cp-1, cp-2, cp-3 work"}},
		"external": {false, func(_ *members, s *phasetest.Stage) {
			s.Config.Cluster.Etcd.External = &config.ExternalEtcd{}
		}, nil, []string{"external"}},
		"a full quota": {false, func(m *members, _ *phasetest.Stage) { full(m) }, rescued, nil},
		"a full quota, and a learner with room": {false, func(m *members, _ *phasetest.Stage) {
			full(m)
			m.all[2].Learner, m.all[2].Status.Size, m.all[2].Status.Revision = true, gib, 7 // it doesn't even have all keys yet
		}, slices.Concat([]string{"compact 50"}, withoutLearner, []string{"disarm"}), nil},
		"a full quota, and a full learner": {false, func(m *members, _ *phasetest.Stage) {
			full(m)
			m.all[2].Learner = true
		}, nil, []string{"cp-3", "2048 MiB", "NOSPACE"}},
		"a former member's alarm": {false, func(m *members, _ *phasetest.Stage) {
			full(m)
			for i := range m.all {
				m.all[i].Status.Alarms = []etcd.Alarm{{Member: 0xff, Kind: "NOSPACE"}}
			}
		}, rescued, nil},
		"a full quota, and an unknown host that gives nothing": {false, func(m *members, s *phasetest.Stage) {
			full(m)
			m.all[2].Status.Size = m.inUse // an earlier run on cp-3
			s.Cluster = kubelets{s.API, map[string]int64{"cp-2": 50 * gib}}
		}, []string{"compact 50", "defragment cp-1", "lead cp-1", "defragment cp-2", "disarm"}, nil},
		"a full quota, and an unknown host": {false, func(m *members, s *phasetest.Stage) {
			full(m)
			s.Cluster = kubelets{s.API, map[string]int64{"cp-2": 50 * gib}}
		}, []string{"compact 50", "defragment cp-1", "lead cp-1", "defragment cp-2"}, []string{"cp-3"}},
		"an alarm that comes back": {false, func(m *members, _ *phasetest.Stage) {
			full(m)
			m.raises = true
		}, rescued, []string{"NOSPACE"}},
		"a full quota of data, of an etcd that does not say": {false, func(m *members, _ *phasetest.Stage) {
			full(m)
			m.inUse = 2*gib/100*95 + 100
			for i := range m.all {
				m.all[i].Status.Quota = 0
			}
		}, rescued[:len(rescued)-1], []string{"cp-1", "1945 MiB", "2048 MiB"}},
		"a full quota of data": {false, func(m *members, _ *phasetest.Stage) {
			full(m)
			m.inUse = 2*gib/100*95 + 100
		}, rescued[:len(rescued)-1], []string{"cp-1", "1945 MiB", "2048 MiB"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMembers()
			s := stage(t, m)
			row.change(m, s)
			err := step.Run(t.Context(), s.Env, (&Defragmentation{All: row.all}).Phases(), step.Options{})
			if fact.Error(t, err, row.facts...); !slices.Equal(m.did, row.did) {
				t.Errorf("did %q, want %q", m.did, row.did)
			}
		})
	}
}

// TestLeftOutLearner: the operator learns of a learner with free space, and how to get rid of a full one.
func TestLeftOutLearner(t *testing.T) {
	m := newMembers()
	m.all[2].Learner = true
	s := stage(t, m)
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, (&Defragmentation{}).Phases(), step.Options{}))
	fact.In(t, s.Said.String(), "cp-3")
	fact.In(t, fault.Remedy(refuseFullLearner(s.Env, []etcd.Health{{Member: etcd.Member{ID: 0xa3, Learner: true}, Status: etcd.Status{Size: 2, Quota: 2}}})),
		"`slipway etcd member remove a3`", "`slipway reset`")
}

// TestDefragmentInTurn: no other control plane may restart etcd meanwhile.
func TestDefragmentInTurn(t *testing.T) {
	m := newMembers()
	s := stage(t, m)
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, (&Defragmentation{}).Phases(), step.Options{}))
	if !slices.Contains(s.Done, "ensure Lease slipway-upgrade") || s.Holder(t) != "" {
		t.Errorf("the API was asked to %q; the Lease has %q", s.Done, s.Holder(t))
	}
}
