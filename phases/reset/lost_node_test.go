// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// lossy is a cluster of cp-1, the stage's host, cp-2 and cp-3, whose host is lost. It joined with the token aaaaaa.
type lossy struct {
	*phasetest.Stage
	etcd.Etcd
	all   []etcd.Health
	peers error
	alive string // the only URL with this error, if set
	left  []string
	node  *corev1.Node
	lease *coordinationv1.Lease
}

func newLossy(t *testing.T) *lossy {
	t.Helper()
	l := &lossy{Stage: phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument), peers: errors.New("no route to host")}
	pod, err := yaml.Marshal(manifests.Etcd(l.Config, manifests.HostView{}, nil))
	phasetest.Fatal(t, err)
	l.Put(t, "/etc/kubernetes/manifests/etcd.yaml", string(pod))
	for i := range 3 {
		m := etcd.Member{ID: uint64(i + 1), Name: fmt.Sprintf("cp-%d", i+1), PeerURL: fmt.Sprintf("https://192.0.2.1%d:2380", i+1),
			ClientURLs: []string{fmt.Sprintf("https://192.0.2.1%d:2379", i+1)}}
		l.all = append(l.all, etcd.Health{Member: m, Answers: i < 2})
	}
	l.all[2].Err = errors.New("no route to host")
	l.node = cluster.NewNode("cp-3")
	l.node.Labels = map[string]string{cluster.LabelControlPlane: ""}
	l.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.13"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::13"}}
	l.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}
	l.lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "cp-3", Namespace: corev1.NamespaceNodeLease}}
	l.lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	return l
}

func (l *lossy) Health(context.Context) ([]etcd.Health, error) { return slices.Clone(l.all), nil }

func (l *lossy) Peers(_ context.Context, urls []string) []etcd.Peer {
	all := phasetest.Silent(urls)
	for i := range all {
		if l.alive == "" || l.alive == all[i].URL {
			all[i].Err = l.peers
		}
	}
	return all
}

func (l *lossy) Leave(_ context.Context, peerURL string) (bool, error) {
	l.left = append(l.left, peerURL)
	return true, nil
}

// requests are the API's answers about certificate requests.
type requests struct {
	cluster.Cluster
	t     *testing.T
	names map[string]string // by the ID of the token
}

func (r requests) Read(_ context.Context, q cluster.Query, take func(io.Reader) error) error {
	if q.Params.Get("fieldSelector") != "spec.signerName=kubernetes.io/kube-apiserver-client-kubelet" {
		return errors.Errorf("asked for %v", q)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	phasetest.Fatal(r.t, err)
	items := []map[string]any{{"spec": map[string]any{"username": "system:node:cp-3", "request": []byte("damaged")}}}
	for id, name := range r.names {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
		phasetest.Fatal(r.t, err)
		request := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		items = append(items, map[string]any{"spec": map[string]any{"username": "system:bootstrap:" + id, "request": request}})
	}
	data, err := json.Marshal(map[string]any{"items": items})
	phasetest.Fatal(r.t, err)
	return take(strings.NewReader(string(data)))
}

// reset runs the workflow for a node.
func (l *lossy) reset(t *testing.T, name string) error {
	t.Helper()
	objects := []cluster.Object{l.lease}
	if l.node != nil {
		objects = append(objects, l.node)
	}
	for _, id := range []string{"aaaaaa", "bbbbbb"} {
		objects = append(objects, manifests.BootstrapTokenSecret(config.Token{ID: id, Secret: config.NewSecret("0123456789abcdef")}, time.Now()))
	}
	phasetest.Fatal(t, l.API.Ensure(t.Context(), objects...))
	l.Done = nil
	l.Stage.Etcd, l.Cluster = l, requests{l.API, t, map[string]string{"aaaaaa": "system:node:cp-3", "bbbbbb": "system:node:w-1", "cccccc": "system:node:cp-3"}}
	lost, err := NewLostNode(t.Context(), l.Env, name)
	if err != nil {
		return err
	}
	fact.In(t, lost.Summary(), name)
	for _, p := range lost.Phases() {
		if err := p.Run(t.Context(), l.Env); err != nil {
			return err
		}
	}
	return nil
}

func TestLostNode(t *testing.T) {
	const token, member = "delete Secret bootstrap-token-aaaaaa", "https://192.0.2.13:2380"
	unreachable := errors.New("ENETUNREACH")
	answers := func(l *lossy, where string) {
		l.FakeHost.On.Answers = func(_ context.Context, at netip.AddrPort) (bool, error) { return at.String() == where, nil }
	}
	for name, row := range map[string]struct {
		name   string
		change func(l *lossy)
		left   []string // members
		done   []string // to the API
		facts  []string // of the error
	}{
		"lost":             {"cp-3", func(*lossy) {}, []string{member}, []string{token, "delete Node cp-3"}, nil},
		"its Node is gone": {"cp-3", func(l *lossy) { l.node = nil }, []string{member}, []string{token}, nil},
		// A worker may write any address into its Node, which doesn't cost a control plane its member.
		"a worker with the address of a control plane": {"w-1", func(l *lossy) {
			l.node.Name, l.node.Labels, l.lease.Name = "w-1", nil, "w-1"
		}, nil, []string{"delete Secret bootstrap-token-bbbbbb", "delete Node w-1"}, nil},
		"the Node has another name": {"cp-three", func(l *lossy) { l.node.Name, l.lease.Name = "cp-three", "cp-three" },
			[]string{member}, []string{"delete Node cp-three"}, nil},
		"one address cannot be reached": {"cp-3", func(l *lossy) {
			l.FakeHost.On.Answers = func(_ context.Context, at netip.AddrPort) (bool, error) {
				if at.Addr().Is6() {
					return false, unreachable
				}
				return false, nil
			}
		}, []string{member}, []string{token, "delete Node cp-3"}, nil},

		"Ready":                                {"cp-3", func(l *lossy) { l.node.Status.Conditions[0].Status = corev1.ConditionTrue }, nil, nil, []string{"cp-3"}},
		"its kubelet's port is open or closed": {"cp-3", func(l *lossy) { answers(l, "192.0.2.13:10250") }, nil, nil, []string{"192.0.2.13:10250", "`slipway etcd member remove`", "`kubectl delete node`"}},
		"its kubelet has another port": {"cp-3", func(l *lossy) {
			l.node.Status.DaemonEndpoints.KubeletEndpoint.Port = 10260
			answers(l, "192.0.2.13:10260")
		}, nil, nil, []string{"192.0.2.13:10260"}},
		"its second address": {"cp-3", func(l *lossy) { answers(l, "[2001:db8::13]:22") }, nil, nil, []string{"[2001:db8::13]:22"}},
		"its etcd's port": {"cp-3", func(l *lossy) {
			l.node = nil
			answers(l, "192.0.2.13:2379")
		}, nil, nil, []string{"192.0.2.13:2379"}},
		"its etcd":               {"cp-3", func(l *lossy) { l.all[2].Answers = true }, nil, nil, []string{"cp-3", "https://192.0.2.13:2379"}},
		"its etcd, to its peers": {"cp-3", func(l *lossy) { l.peers = nil }, nil, nil, []string{"cp-3", member}},
		"its etcd, at another URL": {"cp-3", func(l *lossy) {
			l.all[2].MorePeerURLs = []string{"https://198.51.100.13:2380"}
			l.peers, l.alive = nil, "https://198.51.100.13:2380"
		}, nil, nil, []string{"cp-3", "https://198.51.100.13:2380"}},
		"its host, at another URL": {"cp-3", func(l *lossy) {
			l.all[2].MorePeerURLs = []string{"https://198.51.100.13:2380"}
			answers(l, "198.51.100.13:2380")
		}, nil, nil, []string{"198.51.100.13:2380"}},
		"its kubelet": {"cp-3", func(l *lossy) {
			l.FakeHost.On.Answers = func(ctx context.Context, _ netip.AddrPort) (bool, error) {
				lease := l.lease.DeepCopy()
				lease.Spec.RenewTime.Time = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
				return false, l.API.Ensure(ctx, lease)
			}
		}, nil, []string{"ensure Lease cp-3"}, []string{"2026-01-02T00:00:00Z"}},
		"nothing could be looked at": {"cp-3", func(l *lossy) {
			l.FakeHost.On.Answers = func(context.Context, netip.AddrPort) (bool, error) { return false, unreachable }
		}, nil, nil, []string{"cp-3", "ENETUNREACH"}},
		"no address": {"w-1", func(l *lossy) {
			l.node.Name, l.node.Labels, l.node.Status.Addresses = "w-1", nil, nil
		}, nil, nil, []string{"w-1", "no address"}},
		"its member is needed": {"cp-3", func(l *lossy) { l.all[1].Err = errors.New("connection refused") }, nil, nil, []string{"cp-3", "cp-1 works; cp-2"}},
		"this host":            {"cp-1", func(*lossy) {}, nil, nil, []string{"cp-1"}},
		"this host's address":  {"cp-3", func(l *lossy) { l.all[2].Name, l.all[0].Name = "", "cp-3" }, nil, nil, []string{"cp-3", "https://192.0.2.11:2380"}},
		"unknown":              {"cp-4", func(*lossy) {}, nil, nil, []string{`"cp-4"`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLossy(t)
				row.change(l)
				began := time.Now()
				err := l.reset(t, row.name)
				if took := time.Since(began); err == nil && took < leaseWatchPeriod {
					t.Errorf("it watched the host for %s only", took)
				}
				fact.Error(t, err, row.facts...)
				done := slices.Compact(l.Done)
				if !slices.Equal(l.left, row.left) || !slices.Equal(done, row.done) {
					t.Errorf("members %q left, did %q; want %q, %q", l.left, done, row.left, row.done)
				}
			})
		})
	}
}
