// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// stage is a control plane in a directory, where etcd may have a static Pod.
type stage struct {
	host *linux.Host
	root string
	node *config.Node
	said bytes.Buffer
}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{root: t.TempDir(), node: fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument)}
	s.host = linux.NewAt(s.root)
	return s
}

func (s *stage) endpoints(api cluster.Cluster) func(context.Context) ([]string, error) {
	return EtcdEndpoints(s.host, api, s.node, ui.NewLines(&s.said, &s.said))
}

// startEtcd writes the static Pod of an etcd that has joined cp-0's etcd.
func (s *stage) startEtcd(t *testing.T) {
	t.Helper()
	pod, err := yaml.Marshal(manifests.Etcd(s.node, manifests.HostView{}, []manifests.Member{
		{Name: "cp-0", PeerURL: "https://192.0.2.10:2380"}, {Name: "cp-1", PeerURL: "https://192.0.2.11:2380"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, s.root, s.node.Paths.StaticPod(manifests.EtcdName), string(pod))
}

// pods is an API with these Pods. cp-0 to cp-3 are control planes with the addresses 192.0.2.10 to 192.0.2.13; w-1 is a worker.
// The Service kubernetes has the addresses in servers.
type pods struct {
	cluster.Cluster
	list     []corev1.Pod
	servers  []string
	unmarked string // the control plane whose label somebody has removed
	err      error
}

func (a pods) Pods(context.Context, string, string) ([]corev1.Pod, error) { return a.list, a.err }

func (a pods) Nodes(context.Context) ([]corev1.Node, error) {
	worker := cluster.NewNode("w-1")
	worker.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.21"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}
	list := []corev1.Node{*worker}
	for i := range 4 {
		plane := cluster.NewNode(fmt.Sprintf("cp-%d", i))
		if plane.Name != a.unmarked {
			plane.Labels = map[string]string{cluster.LabelControlPlane: ""}
		}
		plane.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("192.0.2.1%d", i)}}
		list = append(list, *plane)
	}
	return list, nil
}

func (a pods) Get(_ context.Context, obj cluster.Object) (bool, error) {
	slice, is := obj.(*discoveryv1.EndpointSlice)
	if is {
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: a.servers}}
	}
	return is, nil
}

type hanging struct{ cluster.Cluster }

func (hanging) Pods(ctx context.Context, _, _ string) ([]corev1.Pod, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// etcdPod is an etcd's Pod, named after its node.
func etcdPod(name, urls string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name, Annotations: map[string]string{manifests.EtcdURLsAnnotation: urls}},
		Spec: corev1.PodSpec{NodeName: strings.TrimPrefix(name, "etcd-")}}
}

// TestEndpoints finds the members by this host's static Pod and by the API.
func TestEndpoints(t *testing.T) {
	down := pods{err: errors.New("connection refused")}
	one := pods{list: []corev1.Pod{etcdPod("etcd-cp-0", "https://192.0.2.10:2379")}}
	for _, tt := range []struct {
		name    string
		api     pods
		started bool
		want    []string
		err     []string
	}{
		{"by the API", one, false, []string{"https://192.0.2.10:2379"}, nil},
		{"the API is down", down, false, nil, []string{"connection refused"}},
		{"no Pods", pods{}, false, nil, []string{"etcd Pod", "external"}},
		{"no Pod that names a URL", pods{list: []corev1.Pod{etcdPod("etcd-cp-0", ""), etcdPod("etcd-cp-1", "")}}, false, nil,
			[]string{"annotation kubeadm.kubernetes.io/etcd.advertise-client-urls", "etcd-cp-0, etcd-cp-1"}},
		{"by the static Pod", down, true, []string{"https://192.0.2.10:2379", "https://192.0.2.11:2379"}, nil},
		{"by both", pods{list: []corev1.Pod{etcdPod("etcd-cp-2", "https://192.0.2.12:2379"), etcdPod("etcd-cp-0", "https://192.0.2.10:2379")}}, true,
			[]string{"https://192.0.2.10:2379", "https://192.0.2.11:2379", "https://192.0.2.12:2379"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			if tt.started {
				s.startEtcd(t)
			}
			urls, err := s.endpoints(tt.api)(t.Context())
			var none *NoEtcdPodError
			if passes := errors.As(err, &none); passes != strings.Contains(tt.name, "no Pod") {
				t.Errorf("%v is a NoEtcdPodError: %t", err, passes)
			}
			if fact.Error(t, err, tt.err...); !slices.Equal(urls, tt.want) {
				t.Errorf("got %v, %v, want %v", urls, err, tt.want)
			}
		})
	}
}

// TestEndpointsSkipInvalidURLs expects one warning for each.
func TestEndpointsSkipInvalidURLs(t *testing.T) {
	s := newStage(t)
	odd := []corev1.Pod{etcdPod("etcd-cp-0", "http://192.0.2.10:2379"), etcdPod("etcd-cp-1", "not a URL"), etcdPod("etcd-cp-2", "")}
	const first = `Pod kube-system/etcd-cp-0: "http://192.0.2.10:2379"`
	find := s.endpoints(pods{list: append(slices.Clone(odd), etcdPod("etcd-cp-3", "https://192.0.2.13:2379, https://192.0.2.13:12379"))})
	for range 2 {
		if urls, err := find(t.Context()); err != nil || !slices.Equal(urls, []string{"https://192.0.2.13:2379", "https://192.0.2.13:12379"}) {
			t.Errorf("got %v, %v", urls, err)
		}
	}
	said := s.said.String()
	for _, warning := range []string{first, `Pod kube-system/etcd-cp-1: "not a URL"`} {
		if strings.Count(said, warning) != 1 {
			t.Errorf("want the warning %q once, got:\n%s", warning, said)
		}
	}
	if _, err := s.endpoints(pods{list: odd})(t.Context()); err == nil || !strings.Contains(err.Error(), first) {
		t.Errorf("without a valid URL: %v", err)
	}
}

// TestEndpointsOfOthers: only a control plane says where its member is, and only at its own address or an API server's. A
// worker's claim is named, but has no other effect: a join waits for a control plane's Pod as it would without it.
func TestEndpointsOfOthers(t *testing.T) {
	const evil = "https://203.0.113.6:2379"
	for name, test := range map[string]struct {
		pods    []corev1.Pod
		servers []string
		want    []string
		refused []string // facts of a warning, or of the error
	}{
		"a worker":                              {[]corev1.Pod{etcdPod("etcd-w-1", evil)}, nil, nil, []string{"etcd-w-1", `"w-1"`, cluster.LabelControlPlane}},
		"a worker at a control plane's address": {[]corev1.Pod{etcdPod("etcd-w-1", "https://192.0.2.10:2379")}, nil, nil, []string{"etcd-w-1", cluster.LabelControlPlane}},
		"a worker beside a control plane": {[]corev1.Pod{etcdPod("etcd-w-1", evil), etcdPod("etcd-cp-1", "https://192.0.2.11:2379")}, nil,
			[]string{"https://192.0.2.11:2379"}, []string{"etcd-w-1"}},
		"no node":               {[]corev1.Pod{etcdPod("etcd-gone", evil)}, nil, nil, []string{"etcd-gone"}},
		"not its address":       {[]corev1.Pod{etcdPod("etcd-cp-1", evil)}, nil, nil, []string{"etcd-cp-1", evil, "node cp-1"}},
		"an address of another": {[]corev1.Pod{etcdPod("etcd-cp-1", "https://192.0.2.12:2379")}, nil, nil, []string{"etcd-cp-1"}},
		"another network":       {[]corev1.Pod{etcdPod("etcd-cp-1", "https://198.51.100.1:2379")}, []string{"198.51.100.1"}, []string{"https://198.51.100.1:2379"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			urls, err := s.endpoints(pods{list: test.pods, servers: test.servers})(t.Context())
			if !slices.Equal(urls, test.want) {
				t.Errorf("asks %v, want %v", urls, test.want)
			}
			if fact.In(t, s.said.String(), test.refused...); test.want != nil {
				return
			}
			var none *NoEtcdPodError
			if !errors.As(err, &none) {
				t.Fatalf("%v is no NoEtcdPodError", err)
			}
			fact.Error(t, err, test.refused...)
			if label := slices.Contains(test.refused, cluster.LabelControlPlane); strings.Contains(none.Remedy(), cluster.LabelControlPlane) != label {
				t.Errorf("to do: %s", none.Remedy())
			}
		})
	}
}

// TestEndpointsWithoutTheLabel: this host's etcd is asked, and there's no warning about it. Another host's isn't, and there's a
// remedy.
func TestEndpointsWithoutTheLabel(t *testing.T) {
	s := newStage(t)
	api := pods{list: []corev1.Pod{etcdPod("etcd-cp-1", "https://192.0.2.11:2379")}, unmarked: "cp-1"}
	_, err := s.endpoints(api)(t.Context())
	var none *NoEtcdPodError
	if !errors.As(err, &none) {
		t.Fatalf("%v is no NoEtcdPodError", err)
	}
	fact.In(t, none.Remedy(), "cp-1", "`kubectl label node NAME "+cluster.LabelControlPlane+"=`")
	s.said.Reset()
	s.startEtcd(t)
	if urls, err := s.endpoints(api)(t.Context()); err != nil || !slices.Contains(urls, "https://192.0.2.11:2379") || s.said.Len() > 0 {
		t.Errorf("asks %v, %v, and says %s", urls, err, s.said.String())
	}
}

// TestEndpointsOfAStoppedEtcd: while neither the API nor this host's etcd works, its data names the members that have joined since.
func TestEndpointsOfAStoppedEtcd(t *testing.T) {
	s := newStage(t)
	s.startEtcd(t)
	data := fixture.Get(t, fixture.Path("internal/etcd"), "testdata/snapshot-3.6.db")
	const joined = "https://127.0.0.1:2379"
	for stored, found := range map[string]bool{data: false, strings.ReplaceAll(data, "http://127.0.0.1:23790", joined): true, "cut": false} {
		fixture.Put(t, s.root, "/var/lib/etcd/member/snap/db", stored)
		urls, err := s.endpoints(pods{err: errors.New("connection refused")})(t.Context())
		if err != nil || !slices.Contains(urls, "https://192.0.2.11:2379") || slices.Contains(urls, joined) != found {
			t.Errorf("asks %v, %v", urls, err)
		}
	}
}

// TestEndpointsOfAHangingAPI: the members this host knows are returned early enough to ask them.
func TestEndpointsOfAHangingAPI(t *testing.T) {
	s := newStage(t)
	s.startEtcd(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), etcd.HealthTimeout)
		defer cancel()
		started := time.Now()
		urls, err := s.endpoints(hanging{})(ctx)
		if err != nil || !slices.Contains(urls, "https://192.0.2.11:2379") || time.Since(started) > etcd.HealthTimeout/2 {
			t.Errorf("got %v, %v after %s", urls, err, time.Since(started))
		}
	})
}

func TestExternalEtcd(t *testing.T) {
	s := newStage(t)
	path := s.node.Paths.StaticPod(manifests.APIServerName)
	put := func(servers string) {
		fixture.Put(t, s.root, path, "spec: {containers: [{command: [kube-apiserver, '--etcd-servers="+servers+"', --etcd-cafile=/ca, --etcd-certfile=/crt, --etcd-keyfile=/key]}]}")
	}
	if got := ExternalEtcd(s.host, s.node.Paths); got != nil {
		t.Errorf("without an API server: %+v", got)
	}
	for servers, want := range map[string]int{
		"https://127.0.0.1:2379": 0, "https://[::1]:2379": 0, "https://localhost:2379": 0, "https://192.0.2.5:2379": 1, "https://192.0.2.5:2379,https://etcd.example:2379": 2,
	} {
		put(servers)
		got := ExternalEtcd(s.host, s.node.Paths)
		if want == 0 != (got == nil) || got != nil && (len(got.Endpoints) != want || got.CAFile != "/ca" || got.CertFile != "/crt" || got.KeyFile != "/key") {
			t.Errorf("%s: %+v", servers, got)
		}
	}
	s.startEtcd(t)
	if got := ExternalEtcd(s.host, s.node.Paths); got != nil {
		t.Errorf("beside a static Pod of etcd: %+v", got)
	}
}

// TestCertificatesDir: commands for a living control plane find its certificates by its API server.
func TestCertificatesDir(t *testing.T) {
	s := newStage(t)
	const other = "/srv/pki"
	for _, want := range []string{config.DefaultCertificatesDir, other} {
		if got := CertificatesDir(s.host); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s.node = s.node.With(func(n *config.Node) { n.Paths.PKI = other })
		pod, err := yaml.Marshal(manifests.APIServer(s.node, manifests.HostView{}))
		if err != nil {
			t.Fatal(err)
		}
		fixture.Put(t, s.root, APIServerManifest, string(pod))
	}
}

// TestInterruptedEtcd: while a command that gives etcd other data hasn't finished, others name it instead of a missing static Pod.
func TestInterruptedEtcd(t *testing.T) {
	const rollback, dir = "upgrade rollback --restore-etcd", "/etc/kubernetes/manifests/"
	const server, etcd = dir + "kube-apiserver.yaml", dir + "etcd.yaml"
	for name, row := range map[string]struct {
		file, text, command string
		beside              []string // other files
	}{
		"a restore":                   {"slipway-etcd-data.yaml", "command: etcd restore\nfrom: /a.db\n", "etcd restore /a.db", nil},
		"a recovery":                  {"slipway-etcd-data.yaml", "command: etcd recover\n", "etcd recover", nil},
		"a rollback that stops etcd":  {RollbackFile, "aside: /var/lib/etcd/x\n", rollback, []string{server}},
		"a rollback that moves data":  {RollbackFile, "aside: /var/lib/etcd/x\n", rollback, []string{"/var/lib/etcd/x/snap/db"}},
		"a rollback with its data":    {RollbackFile, "aside: /var/lib/etcd/x\nrestored: true\n", rollback, nil},
		"a rollback that never began": {RollbackFile, "aside: /var/lib/etcd/x\n", "", []string{server, etcd}},
		"a rollback of a former node": {RollbackFile, "aside: /var/lib/etcd/x\n", "", nil},
		"without etcd's data":         {RollbackFile, "began: 2026-11-21T08:00:00Z\n", "", []string{server}},
		"a rollback that ended": {RollbackFile, "aside: /var/lib/etcd/x\nrestored: true\nfinished: 2026-11-21T08:00:00Z\n", "",
			[]string{server, "/var/lib/etcd/x/snap/db"}},
		"a broken file": {RollbackFile, "aside: [", "", []string{server}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			fixture.Put(t, s.root, s.node.Paths.Kubernetes+"/tmp/"+row.file, row.text)
			for _, path := range row.beside {
				fixture.Put(t, s.root, path, "kind: Pod\n")
			}
			_, own := OwnEtcdEndpoints(s.host, s.node.Paths)(t.Context())
			_, all := s.endpoints(pods{err: errors.New("connection refused")})(t.Context())
			for _, err := range []error{own, all} {
				var by Interruption
				if found := errors.As(err, &by); found != (row.command != "") || by.Command != row.command {
					t.Errorf("%q: %v", by.Command, err)
				}
			}
			s.startEtcd(t)
			_, err := OwnEtcdEndpoints(s.host, s.node.Paths)(t.Context())
			fact.Error(t, err)
		})
	}
}
