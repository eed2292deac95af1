// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"testing"

	"github.com/pkg/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestOthersSuffice(t *testing.T) {
	dead := errors.New("connection refused")
	member := func(name, peer string, fault error) etcd.Health {
		return etcd.Health{Member: etcd.Member{Name: name, PeerURL: peer}, Err: fault}
	}
	own := member("cp-1", phasetest.OwnPeer, nil)
	for name, tt := range map[string]struct {
		health []etcd.Health
		want   []string
	}{
		"alone":                          {[]etcd.Health{own}, nil},
		"all healthy":                    {[]etcd.Health{own, member("b", "b", nil), member("c", "c", nil)}, nil},
		"two, one dead":                  {[]etcd.Health{own, member("b", "b", dead)}, []string{"2 members", "2 besides", "none works; b", "(connection refused)"}},
		"three, one dead":                {[]etcd.Health{own, member("b", "b", dead), member("c", "c", nil)}, []string{"3 members", "2 besides", "c works; b", "(connection refused)"}},
		"one that has no name yet":       {[]etcd.Health{own, member("", "https://b:2380", dead)}, []string{"none works; https://b:2380"}},
		"five, one dead":                 {[]etcd.Health{own, member("b", "b", dead), member("c", "c", nil), member("d", "d", nil), member("e", "e", nil)}, nil},
		"a learner that is dead":         {[]etcd.Health{own, {Member: etcd.Member{Name: "b", Learner: true}, Err: dead}}, nil},
		"which is this one is not known": {[]etcd.Health{member("a", "a", nil), member("b", "b", nil), member("c", "c", dead)}, []string{"voting member", phasetest.OwnPeer}},
		"a learner itself":               {[]etcd.Health{{Member: etcd.Member{Name: "cp-1", PeerURL: phasetest.OwnPeer, Learner: true}}, member("b", "b", nil), member("c", "c", dead)}, nil},
		"this one is ill":                {[]etcd.Health{member("cp-1", phasetest.OwnPeer, dead), member("b", "b", nil), member("c", "c", nil)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			fact.Error(t, CheckQuorumOfOthers(tt.health, phasetest.OwnPeer), tt.want...)
		})
	}
}

// TestRemedyOfQuorum: nobody is told to remove members because this host's own certificates aren't accepted.
func TestRemedyOfQuorum(t *testing.T) {
	for name, row := range map[string]struct {
		err  error
		want string
	}{
		"a member is dead":       {errors.New("connection refused"), "`slipway etcd member remove ID`"},
		"no certificate":         {etcd.CredentialsError{Err: errors.New("no such file")}, "`slipway certs renew apiserver-etcd-client`"},
		"an expired certificate": {status.Error(codes.Unavailable, "remote error: tls: expired certificate"), "`slipway certs renew apiserver-etcd-client`"},
	} {
		t.Run(name, func(t *testing.T) {
			fact.In(t, fault.Remedy(errors.WithMessage(&QuorumError{errors.WithMessage(row.err, "ask")}, "etcd")), row.want)
		})
	}
}

// TestQuorumOfInterrupted: a command that can't find this node's member names the interrupted command, which has taken its static Pod away.
func TestQuorumOfInterrupted(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	phasetest.Fatal(t, EtcdJournal{Command: "etcd restore", From: "/a.db", OldData: "/x", Manifest: "etcd"}.Write(s.Env))
	err := AwaitPeers(t.Context(), s.Env)
	fact.Error(t, err, "`slipway etcd restore /a.db`")
	fact.In(t, fault.Remedy(err), "`slipway etcd restore /a.db`")
}
