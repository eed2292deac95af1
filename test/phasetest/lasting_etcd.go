// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/dial"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// ReportingNode is a Node whose kubelet keeps reporting.
func ReportingNode(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": name},
		"status": map[string]any{"conditions": []any{map[string]any{
			"type": "Ready", "status": "False", "lastHeartbeatTime": "2999-01-01T00:00:00Z",
		}}}}
}

// KubeletOf writes the discovery file, and sets the files a node's kubelet writes once the cluster has signed its certificate.
func (s *Scene) KubeletOf(t *testing.T, node string, ca []byte) error {
	signer := fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour)) // as while a CA is replaced
	ca = slices.Concat(ca, certs.EncodeCerts(signer.Cert))
	file := func(user string) string {
		return fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
"clusters": [{"name": "k", "cluster": {"server": %q, "certificate-authority-data": %q}}],
"users": [{"name": "u", "user": {%s}}], "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}]}`,
			s.API.URL, base64.StdEncoding.EncodeToString(ca), user)
	}
	const client = "/var/lib/kubelet/pki/kubelet-client-current.pem"
	kubelet := fixture.Signed(t, signer, "system:node:"+node, time.Now().Add(time.Hour))
	key, err := certs.EncodeKey(kubelet.Key)
	return errors.Join(err,
		os.WriteFile(s.Root+"/discovery.conf", []byte(file(`"token": "`+fixture.Token+`"`)), 0o600),
		WillMake(s.Root, client, string(certs.EncodeCerts(kubelet.Cert))+string(key)),
		WillMake(s.Root, "/etc/kubernetes/kubelet.conf", file(fmt.Sprintf(`"client-certificate": %q, "client-key": %q`, client, client))))
}

// lastingMembers is the membership of an etcd with one other member, stored in the host's files: see LastingHost.
type lastingMembers struct {
	etcd.Etcd
	host *LastingHost
}

// Has is asked for the cluster's configuration by a host whose API server doesn't answer.
func (m lastingMembers) Has(context.Context, string) (bool, error) {
	return false, errors.New("this etcd does not answer")
}

const fakeLearner, fakeVoter, fakeMoved = "/var/fake/etcd/learner", "/var/fake/etcd/voter", "/var/fake/etcd-moved"

// MovedPeer is where a lasting host's own member can move.
const MovedPeer = "https://192.0.2.77:2380"

// own is this host's member.
func (m lastingMembers) own() etcd.Member {
	if m.host.has(fakeMoved) {
		return etcd.Member{ID: 1, Name: "cp-1", PeerURL: MovedPeer}
	}
	return etcd.Member{ID: 1, Name: "cp-1", PeerURL: OwnPeer}
}

func (m lastingMembers) Move(_ context.Context, _ uint64, from []string, to string) (bool, error) {
	switch at := m.own().PeerURL; {
	case at == to:
		return false, nil
	case !slices.Contains(from, at) || to != MovedPeer:
		return false, fmt.Errorf("the member is at %s, not at %q, and can't move to %s", at, from, to)
	}
	err := m.host.Note(fakeMoved)
	return err == nil, err
}

// Withdraw finds no key: each is of a stopped API server.
func (m lastingMembers) Withdraw(context.Context, string) (bool, error) { return false, nil }

func (m lastingMembers) Members(context.Context) ([]etcd.Member, error) {
	own := m.own()
	head, _ := os.ReadFile(m.host.Root + EtcdLog)
	data, _ := etcd.ReadData(head[:min(len(head), etcd.DataHead)]) // the zero one, without a log
	own.Cluster = data.Cluster
	list := []etcd.Member{own}
	if m.host.has(fakeLearner) {
		list = append(list, etcd.Member{ID: 2, PeerURL: "https://192.0.2.12:2380", Learner: !m.host.has(fakeVoter)})
	}
	return list, nil
}

func (m lastingMembers) Join(ctx context.Context, _, _ string) ([]etcd.Member, bool, error) {
	added := !m.host.has(fakeLearner)
	err := m.host.Note(fakeLearner)
	list, _ := m.Members(ctx)
	return list, added && err == nil, err
}

// Promote succeeds once the member runs.
func (m lastingMembers) Promote(context.Context, string) error {
	if !m.host.has(KubeletActive) || !m.host.has("/etc/kubernetes/manifests/etcd.yaml") {
		return errors.New("the learner does not run")
	}
	return m.host.Note(fakeVoter)
}

func (m lastingMembers) Leave(context.Context, string) (bool, error) {
	left := m.host.has(fakeLearner)
	return left, errors.Join(removeFake(m.host.Root+fakeVoter), removeFake(m.host.Root+fakeLearner))
}

const (
	// HasEtcdData marks a host whose etcd must not start without data: it would begin an empty cluster.
	HasEtcdData     = "/var/fake/etcd-has-data"
	RollbackBackups = "/etc/kubernetes/tmp/"
	UpgradeTime     = "2026-02-03-04-05-06"
	OldVersion      = "v1.36.4"
)

func (m lastingMembers) Health(context.Context) ([]etcd.Health, error) {
	return []etcd.Health{{Member: m.own(), Answers: true, Status: etcd.Status{Revision: 500, Size: 2 << 30}}}, nil
}

func (m lastingMembers) Peers(_ context.Context, urls []string) []etcd.Peer { return Silent(urls) }

// Silent answers for peers that don't run.
func Silent(urls []string) (all []etcd.Peer) {
	for _, url := range urls {
		all = append(all, etcd.Peer{URL: url, Err: dial.SilentError{Err: context.DeadlineExceeded}})
	}
	return all
}

func (m lastingMembers) MoveLeader(context.Context, etcd.Identity) (bool, error) { return false, nil }

func (m lastingMembers) CaughtUp(context.Context, etcd.Identity) error { return nil }

func (m lastingMembers) Snapshot(_ context.Context, _ string, w io.Writer) (etcd.SnapshotInfo, error) {
	data, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err != nil {
		return etcd.SnapshotInfo{}, err
	}
	_, err = w.Write(data)
	return etcd.SnapshotInfo{}, err
}
