// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"testing"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// severalURLs is an etcd whose members have several peer URLs. cp-2 answers at its second one only.
type severalURLs struct{ etcd.Etcd }

func (severalURLs) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{
		{Member: etcd.Member{ID: 1, Cluster: 7, Name: "cp-1", PeerURL: "https://a:2380", MorePeerURLs: []string{"https://b:2380"}}, Answers: true, Status: etcd.Status{Revision: 500}},
		{Member: etcd.Member{ID: 2, Cluster: 7, Name: "cp-2", PeerURL: "https://c:2380", MorePeerURLs: []string{"https://d:2380"}}},
	}, nil
}

func (severalURLs) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := phasetest.Silent(urls)
	for i := range all {
		if all[i].URL == "https://d:2380" {
			all[i].Err = nil
		}
	}
	return all
}

// TestOthersWithSeveralURLs: a restore finds this host's member, and so the present revision, and asks the others at all their URLs.
func TestOthersWithSeveralURLs(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Etcd = severalURLs{}
	o := node.EtcdOthers{Own: manifests.LocalMember{Name: "cp-1", PeerURL: "https://b:2380"}}
	phasetest.Fatal(t, o.Find(t.Context(), s.Env))
	if o.Revision != 500 || o.Cluster != 7 {
		t.Errorf("revision %d, cluster %d", o.Revision, o.Cluster)
	}
	fact.List(t, o.Running, "cp-2")
	fact.List(t, o.Silent)
}
