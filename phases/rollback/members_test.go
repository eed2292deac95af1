// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package rollback

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// In these tests, control plane cp-N is at 192.0.2.1N.
func addressOf(name string) string { return "192.0.2.1" + strings.TrimPrefix(name, "cp-") }

func peerOf(name string) string { return manifests.PeerURL(addressOf(name)) }

func membersOfNames(names []string) (list []etcd.Member) {
	for i, name := range names {
		list = append(list, etcd.Member{ID: uint64(i + 1), Name: name, PeerURL: peerOf(name)})
	}
	return list
}

// namesOfOthers are the sources of members' names: each has names separated by spaces.
type namesOfOthers struct {
	snapshot, database, static, nodes string
	runs                              string // members that answer at their peer URLs
}

func (n namesOfOthers) on(t *testing.T, s *phasetest.Stage) (*restore, otherMembers) {
	t.Helper()
	o := &restore{EtcdOthers: node.EtcdOthers{Data: "/var/lib/etcd/member", Own: manifests.LocalMember{Name: "cp-1", PeerURL: phasetest.OwnPeer}}}
	o.Earlier = membersOfNames(strings.Fields(n.snapshot))
	if n.database != "" {
		hasDatabase(t, s.Root, membersOfNames(strings.Fields(n.database)))
	}
	if n.static != "" {
		var initial []manifests.Member
		for _, name := range strings.Fields(n.static) {
			initial = append(initial, manifests.Member{Name: name, PeerURL: peerOf(name)})
		}
		pod, err := manifests.Encode(manifests.Etcd(s.Config, manifests.HostView{}, initial))
		if err != nil {
			t.Fatal(err)
		}
		s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", string(pod))
	}
	s.Cluster = noAPI()
	if n.nodes != "" {
		s.Cluster = theseNodes{names: strings.Fields(n.nodes)}
	}
	answer := otherMembers{peers: map[string][]etcd.Member{}}
	for _, name := range strings.Fields(n.runs) {
		answer.peers[peerOf(name)] = nil
	}
	return o, answer
}

// theseNodes is an API with these Nodes: cp-N are control planes, the others workers.
type theseNodes struct {
	cluster.Cluster
	names []string
}

func (n theseNodes) Nodes(context.Context) (list []corev1.Node, err error) {
	for _, name := range n.names {
		object := cluster.NewNode(name)
		if strings.HasPrefix(name, "cp-") {
			object.Labels = map[string]string{cluster.LabelControlPlane: ""}
		}
		if strings.HasPrefix(name, "cp-") && name != "cp-none" {
			object.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addressOf(name)}}
		}
		list = append(list, *object)
	}
	return list, nil
}

// hasDatabase makes the database of a stopped etcd with these members.
func hasDatabase(t *testing.T, root string, members []etcd.Member) {
	t.Helper()
	const path = "/var/lib/etcd/member/snap/db"
	snapshot, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, root, path, string(snapshot[:len(snapshot)-sha256.Size]))
	db, err := bbolt.Open(root+path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, m := range members {
			value := fmt.Sprintf(`{"id":%d,"peerURLs":[%q],"name":%q}`, m.ID, m.PeerURL, m.Name)
			if err := tx.Bucket([]byte("members")).Put([]byte(fmt.Sprint(m.ID)), []byte(value)); err != nil {
				return err
			}
		}
		return nil
	})
	if failure := db.Close(); err != nil || failure != nil {
		t.Fatal(err, failure)
	}
}

// TestRestoreAsksOthers: every possible member of etcd is asked, whatever the source of its name. A restore doesn't begin while
// one runs, nor, unless the operator insists, while nobody knows.
func TestRestoreAsksOthers(t *testing.T) {
	down := func(m *otherMembers) { m.err = errors.New("connection refused") }
	silent := func(facts ...string) []phasetest.FoundAs {
		return []phasetest.FoundAs{{Name: "error " + fault.EtcdOtherMembers, Facts: facts}}
	}
	for name, tt := range map[string]struct {
		others  namesOfOthers
		answers func(*otherMembers)
		runs    []string // facts of the error
		want    []phasetest.FoundAs
	}{
		"joined after the snapshot, and run": {namesOfOthers{snapshot: "cp-1", static: "cp-1", database: "cp-1 cp-2 cp-3", runs: "cp-2 cp-3"}, down,
			[]string{"run: cp-2, cp-3."}, nil},
		"joined after the snapshot, and one runs": {namesOfOthers{snapshot: "cp-1", static: "cp-1", database: "cp-1 cp-2 cp-3", runs: "cp-3"}, down,
			[]string{"run: cp-3."}, nil},
		"joined after the snapshot, and silent": {namesOfOthers{snapshot: "cp-1", static: "cp-1", database: "cp-1 cp-2 cp-3"}, down, nil, silent("cp-2", "cp-3")},
		"only in the snapshot":                  {namesOfOthers{snapshot: "cp-1 cp-2", database: "cp-1"}, down, nil, silent("cp-2")},
		"only in the snapshot, and run":         {namesOfOthers{snapshot: "cp-1 cp-2", database: "cp-1", runs: "cp-2"}, down, []string{"run: cp-2."}, nil},
		"only in the static Pod":                {namesOfOthers{snapshot: "cp-1", database: "cp-1", static: "cp-1 cp-2"}, down, nil, silent("cp-2")},
		"only a Node":                           {namesOfOthers{snapshot: "cp-1", nodes: "cp-1 cp-2"}, down, nil, silent("cp-2")},
		"only a Node, and it runs":              {namesOfOthers{snapshot: "cp-1", nodes: "cp-1 cp-2", runs: "cp-2"}, down, []string{"run: cp-2."}, nil},
		"a Node without an address":             {namesOfOthers{snapshot: "cp-1", nodes: "cp-1 cp-none"}, down, nil, []phasetest.FoundAs{{Name: "error " + fault.EtcdOtherMembers, Facts: []string{"cp-none"}}}},
		"a worker":                              {namesOfOthers{snapshot: "cp-1", nodes: "cp-1 worker-1"}, down, nil, nil},
		"alone, by the database":                {namesOfOthers{snapshot: "cp-1", database: "cp-1"}, down, nil, nil},
		"nobody knows":                          {namesOfOthers{snapshot: "cp-1", static: "cp-1"}, down, nil, []phasetest.FoundAs{{Name: "error " + fault.EtcdOtherMembers, Facts: []string{"/var/lib/etcd/member/snap/db"}}}},
		"this one waits for a quorum": {namesOfOthers{snapshot: "cp-1"}, func(m *otherMembers) {
			down(m)
			m.peers[phasetest.OwnPeer] = membersOfNames([]string{"cp-1", "cp-2"})
		}, nil, silent("cp-2")},
		"they have left": {namesOfOthers{snapshot: "cp-1 cp-2", static: "cp-1 cp-2", nodes: "cp-1 cp-2"}, func(*otherMembers) {}, nil, nil},
		"they have left, and carry on": {namesOfOthers{snapshot: "cp-1", nodes: "cp-1 cp-2", runs: "cp-2"}, func(*otherMembers) {},
			[]string{"run: cp-2."}, nil},
		"they have left, but this one has no leader": {namesOfOthers{snapshot: "cp-1 cp-2"}, func(m *otherMembers) { m.leaderless = true }, nil, silent("cp-2")},
		"one is silent": {namesOfOthers{snapshot: "cp-1 cp-2"}, func(m *otherMembers) { m.others = []etcd.Health{member("cp-2", false)} },
			nil, silent("cp-2")},
		"one runs": {namesOfOthers{snapshot: "cp-1"}, func(m *otherMembers) { m.others = []etcd.Health{member("cp-2", true), member("cp-3", false)} },
			[]string{"run: cp-2."}, nil},
		"one waits for a quorum": {namesOfOthers{snapshot: "cp-1"}, func(m *otherMembers) {
			m.others = []etcd.Health{member("cp-2", false)}
			m.peers[member("cp-2", false).PeerURL] = nil
		}, []string{"run: cp-2."}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			o, answer := tt.others.on(t, s)
			tt.answers(&answer)
			s.Etcd = answer
			err := o.Ask(t.Context(), s.Env, "run this again")
			if fact.Error(t, err, tt.runs...); err == nil {
				phasetest.CheckFindings(t, o.findings(), tt.want...)
			}
		})
	}
}

// TestRestorePlanAsksNobody: a plan reports this check as not done.
func TestRestorePlanAsksNobody(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	o, _ := namesOfOthers{snapshot: "cp-1 cp-2", database: "cp-1 cp-2"}.on(t, s)
	s.Etcd = etcd.NewPlan(nil, membersOfNames([]string{"cp-1", "cp-2"})...)
	if err := o.Ask(t.Context(), s.Env, "run this again"); err != nil {
		t.Fatal(err)
	}
	phasetest.CheckFindings(t, o.findings(), phasetest.FoundAs{Name: "unchecked " + fault.EtcdOtherMembers})
}

// TestRestoreRefusesWithoutOthers: a restore doesn't begin while newer members don't answer, unless the operator insists.
func TestRestoreRefusesWithoutOthers(t *testing.T) {
	for name, ignored := range map[string]bool{"CRI": false, "all": false, fault.EtcdOtherMembers: true} {
		s := phasetest.NewScene(t, rollbackScenario)
		defer s.Close()
		h := phasetest.NewLastingHost(s.Root)
		hasDatabase(t, s.Root, membersOfNames([]string{"cp-1", "cp-2"}))
		answer := otherMembers{err: errors.New("connection refused")}
		r, n, err := newRollback(t.Context(), noAPI(), h, answer, true, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		n.IgnorePreflightErrors = []string{name}
		err = r.preflight(t.Context(), &step.Env{Config: n, Host: h, Cluster: noAPI(), Etcd: answer, UI: ui.NewLines(io.Discard, io.Discard)})
		switch {
		case ignored && err != nil:
			t.Error(err)
		case !ignored:
			fact.Error(t, err, fault.EtcdOtherMembers, "cp-2")
		}
		fact.In(t, r.Summary(), "reset --force` on cp-2")
	}
}

// TestRestoreClears: what a killed run was making takes no space from the next run.
func TestRestoreClears(t *testing.T) {
	s := phasetest.NewScene(t, rollbackScenario)
	defer s.Close()
	fixture.Put(t, s.Root, phasetest.HalfBuilt+"/snap/db", "half")
	lasting := phasetest.NewLastingHost(s.Root)
	h := phasetest.Cramped{Host: lasting, By: phasetest.HalfBuilt}
	r, n, err := newRollback(t.Context(), noAPI(), lasting, lasting.Members(), true, io.Discard)
	phasetest.Fatal(t, err)
	n.IgnorePreflightErrors = []string{fault.EtcdOtherMembers}
	phasetest.Fatal(t, r.preflight(t.Context(), &step.Env{Config: n, Host: h, Cluster: noAPI(), Etcd: lasting.Members(), UI: ui.NewLines(io.Discard, io.Discard)}))
}
