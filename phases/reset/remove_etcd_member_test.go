// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func threeMembers() []etcd.Member {
	return []etcd.Member{
		{ID: 1, Name: "cp-1", PeerURL: "https://192.0.2.11:2380"},
		{ID: 2, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"},
		{ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"},
	}
}

// TestResetKeepsQuorum: a member the quorum needs stays, with everything on this host, unless the reset is forced. A member is
// removed if it isn't needed, or if nobody can be asked about it.
func TestResetKeepsQuorum(t *testing.T) {
	down := errors.New("connection refused")
	late := errors.WithStack(context.DeadlineExceeded)
	unhealthy := rpctypes.ErrUnhealthy
	needed := func(state string) []string { return []string{"no quorum", `member "cp-1"`, state} }
	unasked := func(why string) phasetest.Line { return phasetest.Line{"[WARNING]", `member "cp-1"`, "etcd: " + why} }
	tests := []struct {
		name  string
		down  []string
		fail  map[string]error
		alter func(m *phasetest.FakeMembers)
		force bool
		log   string // of its etcd
		err   []string
		warns phasetest.Line
	}{
		{name: "all are well"},
		{name: "one is down", down: []string{"cp-3"}, fail: map[string]error{"leave": unhealthy},
			err: needed("cp-2 works; cp-3 does not (connection refused) (etcdserver: unhealthy cluster)")},
		{name: "one is down, forced", down: []string{"cp-3"}, fail: map[string]error{"leave": unhealthy}, force: true,
			warns: append(phasetest.Line{"[WARNING]"}, needed("cp-2 works; cp-3 does not (connection refused)")...)},
		{name: "two are down", down: []string{"cp-2", "cp-3"}, fail: map[string]error{"list": errors.New("no leader")},
			err: needed("none works; cp-2 does not (connection refused); cp-3 does not (connection refused)")},
		{name: "two are down, forced", down: []string{"cp-2", "cp-3"}, fail: map[string]error{"list": errors.New("no leader")}, force: true,
			warns: phasetest.Line{"CONTINUING BECAUSE OF --FORCE"}},
		{name: "others cannot see a member that answers here", fail: map[string]error{"leave": unhealthy}, err: needed("cp-2, cp-3 work")},
		{name: "nobody answers", fail: map[string]error{"list": down, "health": down}, warns: unasked("connection refused")},
		{name: "nobody answers in time", fail: map[string]error{"list": late, "health": late},
			err: []string{`member "cp-1"`, "timeouts.etcdAPICall", "--force"}},
		{name: "late with its health only", fail: map[string]error{"list": down, "health": late}, err: []string{"timeouts.etcdAPICall"}},
		{name: "it does not leave in time", fail: map[string]error{"leave": late}, err: []string{"timeouts.etcdAPICall"}},
		{name: "nobody answers in time, forced", fail: map[string]error{"list": late, "health": late}, force: true,
			warns: phasetest.Line{"CONTINUING BECAUSE OF --FORCE"}},
		{name: "no credentials", fail: noCredentials(), err: []string{`member "cp-1"`, "/srv/pki/etcd/ca.crt", "--cert-dir", "--force"}},
		{name: "no credentials, forced", fail: noCredentials(), force: true, warns: phasetest.Line{"CONTINUING BECAUSE OF --FORCE"}},
		{name: "it cannot leave for another reason", fail: map[string]error{"leave": errors.New("permission denied")}, warns: unasked("permission denied")},
		{name: "it is a learner", down: []string{"cp-2", "cp-3"}, fail: map[string]error{"list": errors.New("no leader")},
			alter: func(m *phasetest.FakeMembers) { m.List[0].Learner = true }, warns: unasked("no leader")},
		{name: "two are down, and it has another URL in etcd", down: []string{"cp-2", "cp-3"}, fail: map[string]error{"list": errors.New("no leader")},
			alter: func(m *phasetest.FakeMembers) { m.List[0].PeerURL, m.List[0].Cluster = "https://192.0.2.99:2380", 7 }, log: phasetest.LogOf(1, 7, true), err: needed("none works")},
		{name: "one is down, and it is not known whether it has left", down: []string{"cp-3"}, fail: map[string]error{"list": late},
			alter: func(m *phasetest.FakeMembers) { m.List = m.List[1:] }, log: "torn", err: needed("cp-2 works")},
		{name: "it has left", down: []string{"cp-3"}, fail: map[string]error{"list": late}, log: phasetest.LogOf(1, 7, true),
			alter: func(m *phasetest.FakeMembers) { m.List = m.List[1:] }, warns: unasked("")},
		{name: "it is alone, and does not work", down: []string{"cp-1"}, fail: map[string]error{"list": errors.New("no leader")},
			alter: func(m *phasetest.FakeMembers) { m.List = m.List[:1] }, warns: unasked("no leader")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newResetScene(t)
			if tt.log != "" {
				s = newResetScene(t, map[string]string{phasetest.EtcdLog: tt.log})
			}
			m := &phasetest.FakeMembers{List: threeMembers(), Fail: tt.fail, Down: map[string]error{}}
			for _, name := range tt.down {
				m.Down[name] = down
			}
			if tt.alter != nil {
				tt.alter(m)
			}
			s.Etcd, s.Config.Reset.Force = m, tt.force
			before := files(t, s.root)
			fact.Error(t, step.Run(t.Context(), s.Env, Node(), step.Options{}), tt.err...)
			if said := s.said.String(); tt.warns != nil {
				phasetest.Once(t, said, tt.warns)
			} else if strings.Contains(said, "WARNING") {
				t.Errorf("said %q", said)
			}
			if diff := cmp.Diff(before, files(t, s.root)); (diff == "") != (tt.err != nil) {
				t.Errorf("changed (-before +after):\n%s", diff)
			}
		})
	}
}

func noCredentials() map[string]error {
	err := etcd.CredentialsError{Err: errors.New("open /srv/pki/etcd/ca.crt: no such file or directory")}
	return map[string]error{"list": errors.WithMessage(err, "list the members of etcd"), "health": err}
}

// TestResetWithoutAnswer ends before it deletes anything if nobody could be asked, or if the members are late, unless etcd's data has
// no member but this host's, or there's none.
func TestResetWithoutAnswer(t *testing.T) {
	const database = "/var/lib/etcd/member/snap/db"
	late := context.DeadlineExceeded
	for name, tt := range map[string]struct {
		members []string // in the database
		open    bool
		goesOn  bool
	}{
		"alone":              {members: []string{"a"}, goesOn: true},
		"two members":        {members: []string{"a", "b"}},
		"etcd runs":          {members: []string{"a"}, open: true},
		"an empty database":  {},
		"no data whatsoever": {goesOn: true},
	} {
		for why, fail := range map[string]map[string]error{"no credentials": noCredentials(), "late": {"list": late, "health": late}} {
			t.Run(name+", "+why, func(t *testing.T) {
				s := newResetScene(t, map[string]string{phasetest.EtcdLog: phasetest.LogOf(0xa, 7, true), filepath.Dir(database) + "/": ""})
				s.Etcd = &phasetest.FakeMembers{List: threeMembers(), Fail: fail}
				db, err := bbolt.Open(s.root+database, 0o600, nil)
				phasetest.Fatal(t, err)
				phasetest.Fatal(t, db.Update(func(tx *bbolt.Tx) error {
					bucket, err := tx.CreateBucket([]byte("members"))
					for i := 0; err == nil && i < len(tt.members); i++ {
						err = bucket.Put([]byte(tt.members[i]), []byte(`{"peerURLs":["https://192.0.2.11:2380"]}`))
					}
					return err
				}))
				if !tt.open {
					phasetest.Fatal(t, db.Close())
				} else {
					defer db.Close()
				}
				if tt.goesOn && tt.members == nil {
					phasetest.Fatal(t, os.RemoveAll(s.root+"/var/lib/etcd/member"))
				}
				before := files(t, s.root)
				err = step.Run(t.Context(), s.Env, Node(), step.Options{})
				if changed := !cmp.Equal(before, files(t, s.root)); (err == nil) != tt.goesOn || changed != tt.goesOn {
					t.Errorf("changed something: %t, %v", changed, err)
				}
			})
		}
	}
}

// TestResetFindsItsMember by the ID in its log if its static Pod has another address, as after `etcdctl member update`.
func TestResetFindsItsMember(t *testing.T) {
	const moved = "https://192.0.2.99:2380"
	for log, want := range map[string][]string{phasetest.LogOf(1, 7, true): {"leave " + moved}, phasetest.LogOf(8, 7, true): {"leave https://192.0.2.11:2380"}, "torn": {"leave https://192.0.2.11:2380"}} {
		s := newResetScene(t, map[string]string{phasetest.EtcdLog: log})
		m := &phasetest.FakeMembers{List: threeMembers()}
		for i := range m.List {
			m.List[i].Cluster = 7
		}
		m.List[0].PeerURL = moved
		s.Etcd = m
		phasetest.Fatal(t, runRemoveEtcdMember(t.Context(), s.Env))
		if diff := cmp.Diff(want, m.Did); diff != "" {
			t.Errorf("did (-want +got):\n%s\n%s", diff, s.said.String())
		}
	}
}

// TestResetGivesUpRestore: the data that an interrupted `init --restore` made goes. That of an interrupted `etcd restore` stays: it may
// be the only copy of the cluster's.
func TestResetGivesUpRestore(t *testing.T) {
	for aside, stays := range map[string]bool{"": false, "/var/lib/etcd/member.before-restore-2026-02-03-04-05-06": true} {
		s := newResetScene(t, map[string]string{"/var/lib/etcd/member.new/snap/db": ""})
		phasetest.Fatal(t, os.Remove(s.root+"/etc/kubernetes/manifests/etcd.yaml"))
		journal := node.EtcdJournal{Command: "init --restore", From: "/root/a.db", OldData: aside, Manifest: strings.ReplaceAll(etcdPod, "DIR", "/var/lib/etcd")}
		phasetest.Fatal(t, journal.Write(s.Env))
		said := s.reset(t)
		if !stays {
			s.isAsBefore(t, fakeMember+"/") // no etcd was asked
			continue
		}
		if _, err := s.host.Lstat("/var/lib/etcd/member"); err != nil {
			t.Errorf("%v\n%s", err, said)
		}
		phasetest.Once(t, said, phasetest.Line{"[WARNING]", "/var/lib/etcd/member stays"})
	}
}

// TestResetAfterAJoinThatWasKilled removes a member that a join added without writing its static Pod.
func TestResetAfterAJoinThatWasKilled(t *testing.T) {
	const here = "https://192.0.2.11:2380"
	apiServer := func(servers, address string) string {
		return "spec: {containers: [{command: [kube-apiserver, '--etcd-servers=" + servers + "', '--advertise-address=" + address + "']}]}\n"
	}
	added := append(threeMembers()[1:], etcd.Member{ID: 9, PeerURL: here, Learner: true})
	tests := []struct {
		name      string
		apiServer string
		list      []etcd.Member
		fail      map[string]error
		did       []string
		says      phasetest.Line
		silent    string
	}{
		{name: "added", apiServer: apiServer("https://127.0.0.1:2379", "192.0.2.11"), list: added, did: []string{"leave " + here}, says: phasetest.Line{`Member "9"`, "left etcd"}},
		{name: "added, with IPv6", apiServer: apiServer("https://[::1]:2379", "2001:db8::11"),
			list: append(threeMembers()[1:], etcd.Member{ID: 9, PeerURL: "https://[2001:db8::11]:2380", Learner: true}), did: []string{"leave https://[2001:db8::11]:2380"}},
		{name: "not added yet", apiServer: apiServer("https://127.0.0.1:2379", "192.0.2.11"), list: threeMembers()[1:], silent: "left etcd"},
		{name: "nobody can be asked", apiServer: apiServer("https://127.0.0.1:2379", "192.0.2.11"), fail: map[string]error{"list": errors.New("connection refused")},
			says: phasetest.Line{"[WARNING]", "cannot tell", here + ": connection refused"}},
		{name: "an external etcd", apiServer: apiServer("https://192.0.2.50:2379", "192.0.2.11"), list: added, says: phasetest.Line{"[WARNING]", "https://192.0.2.50:2379", "external"}},
		{name: "no API server", list: added, silent: "etcd"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newResetScene(t)
			_ = os.Remove(s.root + "/etc/kubernetes/manifests/etcd.yaml")
			_ = os.RemoveAll(s.root + "/var/lib/etcd")
			_ = os.Remove(s.root + fakeMember)
			_ = os.Remove(s.root + "/etc/kubernetes/manifests/kube-apiserver.yaml")
			if tt.apiServer != "" {
				if err := lay(s.root, map[string]string{"/etc/kubernetes/manifests/kube-apiserver.yaml": tt.apiServer}); err != nil {
					t.Fatal(err)
				}
			}
			m := &phasetest.FakeMembers{List: tt.list, Fail: tt.fail}
			s.Etcd = m
			said := s.reset(t)
			if diff := cmp.Diff(tt.did, m.Did); diff != "" {
				t.Errorf("etcd was asked to (-want +got):\n%s", diff)
			}
			if tt.says != nil {
				phasetest.Once(t, said, tt.says)
			}
			fact.NotIn(t, said, tt.silent)
			s.isAsBefore(t)
		})
	}
}
