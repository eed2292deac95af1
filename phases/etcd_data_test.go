// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// etcdLog is a file that an etcd has once it has run.
const etcdLog = "/var/lib/etcd/member/wal/0.wal"

// TestEtcdJoinHoldsAgainstData: a member is started with its own data only. One
// that has lost them makes room for a new one; what is of another is refused.
func TestEtcdJoinHoldsAgainstData(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	const join, promote, leave = "join " + peer, "promote " + peer, "leave " + peer
	const foreign = "/var/lib/etcd/member holds the data of an etcd that is no member of this cluster"
	ran := etcd.Member{ID: 9, Name: "cp-2", PeerURL: peer, ClientURLs: []string{"https://192.0.2.12:2379"}}
	added := etcd.Member{ID: 9, PeerURL: peer, Learner: true}
	tests := []struct {
		name   string
		member *etcd.Member // at this host's address
		data   string       // a file of it
		pod    bool         // etcd.yaml of an earlier run is here
		before func(s *planeStage)
		did    []string
		err    string
		says   string
	}{
		{name: "a new one", did: []string{join, promote}},
		{name: "a new one, and old data", data: etcdLog, err: foreign},
		{name: "one that was removed since it ran", data: etcdLog, pod: true, err: foreign},
		{name: "added, and cut off", member: &added, did: []string{join, promote}},
		{name: "added, and old data", member: &added, data: etcdLog, err: foreign},
		{name: "started, and cut off before it told its name", member: &added, data: etcdLog, pod: true, did: []string{join, promote}},
		{name: "one that runs", member: &ran, data: etcdLog, pod: true, did: []string{join, promote}},
		{name: "one that runs, led elsewhere by a patch", member: &ran, data: "/srv/etcd/member/wal/0.wal", pod: true, did: []string{join, promote}},
		{name: "one whose host was made anew", member: &ran, did: []string{leave, join, promote},
			says: `[WARNING] etcd has a member "cp-2" at https://192.0.2.12:2380, whose data is not on this host (/var/lib/etcd): it is taken out, and joins anew as a learner`},
		{name: "one that has lost its disk", member: &ran, pod: true, did: []string{leave, join, promote}},
		{name: "one that has lost them before it had its vote", member: &etcd.Member{ID: 9, Name: "cp-2", PeerURL: peer, Learner: true},
			did: []string{leave, join, promote}},
		{name: "one of another name", member: &etcd.Member{ID: 9, Name: "old", PeerURL: peer}, did: []string{join}, err: "it is called old",
			before: func(s *planeStage) { s.etcd.fail = map[string]error{"join": errors.New("it is called old")} }},
		{name: "one that answers", member: &ran, err: "the member \"cp-2\" of etcd answers at https://192.0.2.12:2379, and its data is not on this host",
			before: func(s *planeStage) { s.host.probe = func(context.Context, host.Probe) error { return nil } }},
		{name: "it cannot leave", member: &ran, did: []string{leave}, err: "`etcdctl member remove 9` on another control plane does that, too: unhealthy cluster",
			before: func(s *planeStage) { s.etcd.fail = map[string]error{"leave": errors.New("unhealthy cluster")} }},
		{name: "the others have no quorum", member: &ran, err: "and the others have no quorum without it: start those that are down",
			before: func(s *planeStage) {
				s.etcd.list = append(s.etcd.list, etcd.Member{ID: 3, PeerURL: "https://192.0.2.13:2380"})
			}},
		{name: "there is no other", member: &ran, err: "restore etcd from a snapshot", before: func(s *planeStage) { s.etcd.list = s.etcd.list[1:] }},
		{name: "nobody says who the members are", data: etcdLog, err: "no leader",
			before: func(s *planeStage) { s.etcd.fail = map[string]error{"list": errors.New("no leader")} }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := preparedPlane(t)
			s.host.probe = func(_ context.Context, p host.Probe) error {
				if strings.HasPrefix(p.URL, ran.ClientURLs[0]) {
					return errors.New("connection refused")
				}
				return nil
			}
			if tt.pod {
				s.startedBefore(t, filepath.Dir(filepath.Dir(filepath.Dir(tt.data))))
			}
			if tt.data != "" {
				s.put(t, tt.data, "x")
			}
			if tt.member != nil {
				s.etcd.list = append(s.etcd.list, *tt.member)
			}
			if tt.before != nil {
				tt.before(s)
			}
			s.Host = &endingHost{stubHost: s.host, left: 2}
			if got := message(runEtcdJoin(t.Context(), s.Env)); !strings.Contains(got, tt.err) || tt.err == "" && got != "" {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			if diff := cmp.Diff(tt.did, s.etcd.did); diff != "" {
				t.Errorf("etcd was asked to (-want +got):\n%s", diff)
			}
			if said := s.said.String(); !strings.Contains(said, tt.says) {
				t.Errorf("said %q, want %q", said, tt.says)
			}
		})
	}
}

// startedBefore writes the static Pod of an etcd that an earlier run has
// started, with its data in a folder.
func (s *planeStage) startedBefore(t *testing.T, dir string) {
	t.Helper()
	if err := writeStaticPod(s.Env, manifests.EtcdName, []manifests.Member{{Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}); err != nil {
		t.Fatal(err)
	}
	const path = "/etc/kubernetes/manifests/etcd.yaml"
	if dir != "." {
		s.put(t, path, strings.ReplaceAll(s.get(t, path), "path: /var/lib/etcd", "path: "+dir))
	}
}

// TestEtcdJoinOfARemadeHost: a member that has lost its data is out before
// there is a static Pod to start it, wherever the run is cut off.
func TestEtcdJoinOfARemadeHost(t *testing.T) {
	s := newPlaneStage(t, storedPlane)
	if err := s.discoverPlane(t, someKey); err != nil {
		t.Fatal(err)
	}
	s.etcd.list = append(s.etcd.list, etcd.Member{ID: 9, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"})
	for _, cut := range []string{"leave", "join"} {
		s.etcd.fail = map[string]error{cut: errors.New("killed")}
		if err := Run(t.Context(), s.Env, joinPlane(), Options{}); err == nil {
			t.Fatalf("it went on when killed at %s", cut)
		}
		if _, err := os.Stat(filepath.Join(s.root, "/etc/kubernetes/manifests/etcd.yaml")); err == nil {
			t.Errorf("killed at %s, it leaves an etcd without data that starts", cut)
		}
	}
	s.etcd.fail = nil
	s.play(t, joinPlane()...)
	if got := s.etcd.list; len(got) != 2 || got[1].Learner || got[1].Name != "cp-2" {
		t.Errorf("members %v", got)
	}
	if pod := s.get(t, "/etc/kubernetes/manifests/etcd.yaml"); !strings.Contains(pod, "--initial-cluster-state=existing") {
		t.Error("etcd begins a cluster of its own")
	}
}
