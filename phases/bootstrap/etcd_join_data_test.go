// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestEtcdJoinHoldsAgainstData: a member starts only with its own data. A member that lost its data makes room for a new one, and
// another member's data is refused.
func TestEtcdJoinHoldsAgainstData(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	const join, promote, leave = "join " + peer, "promote " + peer, "leave " + peer
	const cluster = 7
	ran := etcd.Member{ID: 9, Cluster: cluster, Name: "cp-2", PeerURL: peer, ClientURLs: []string{"https://192.0.2.12:2379"}}
	added := etcd.Member{ID: 9, Cluster: cluster, PeerURL: peer, Learner: true}
	learner := ran
	learner.Learner = true
	moved := ran
	moved.PeerURL = "https://192.0.2.99:2380"
	own, started := phasetest.LogOf(9, cluster, true), phasetest.LogOf(9, cluster, false)
	replaced := []string{leave, join, promote}
	down := errors.New("connection refused")
	third := func(s *planeStage) {
		s.etcd.List = append(s.etcd.List, etcd.Member{ID: 3, Name: "cp-3", PeerURL: "https://192.0.2.13:2380"})
	}
	tests := []struct {
		name   string
		member *etcd.Member // at this host's address
		data   string       // of the log here
		at     string       // its path, if not EtcdLog
		pod    bool         // an earlier run's etcd.yaml exists
		before func(s *planeStage)
		did    []string
		err    []string
		says   phasetest.Line
	}{
		{name: "a new one", did: []string{join, promote}},
		{name: "a new one, and one that only its own host reaches", before: func(s *planeStage) { s.etcd.List[0].PeerURL = "http://localhost:2380" },
			err: []string{"http://localhost:2380"}},
		{name: "a new one, and old data", data: own, err: []string{"/var/lib/etcd/member/wal", "member 9", "cluster 7"}},
		{name: "one that was removed since it ran", data: own, pod: true, err: []string{"/var/lib/etcd/member/wal", "member 9"}},
		{name: "added, and cut off", member: &added, did: []string{join, promote}},
		{name: "added, and data of another cluster", member: &added, data: phasetest.LogOf(9, 8, true), err: []string{"/var/lib/etcd/member/wal", "member 9", "cluster 8"}},
		{name: "added, and data of a member that was removed", member: &added, data: phasetest.LogOf(5, cluster, true), did: replaced,
			says: phasetest.Line{"[WARNING]", "(/var/lib/etcd/member/wal)", "member 5", "removed"}},
		{name: "started, and cut off before it told its name", member: &added, data: started, pod: true, did: []string{join, promote}},
		{name: "one that runs", member: &ran, data: own, pod: true, did: []string{join, promote}},
		{name: "one that runs, and has another URL in etcd", member: &moved, data: own, pod: true, err: []string{moved.PeerURL, peer, "--peer-urls=" + peer}},
		{name: "one that runs, led elsewhere by a patch", member: &ran, data: own, at: "/srv/etcd/member/wal/0.wal", pod: true, did: []string{join, promote}},
		{name: "one whose static Pod was moved away, led elsewhere by a patch", member: &ran, data: own, at: "/srv/etcd/member/wal/0.wal", did: []string{join, promote},
			before: func(s *planeStage) {
				s.Config.PatchesDir = "/patches"
				s.Put(t, "/patches/etcd.yaml", "spec: {volumes: [{name: etcd-data, hostPath: {path: /srv/etcd}}]}\n")
			}},
		{name: "one that runs with its log elsewhere", member: &ran, data: own, at: "/srv/wal/0.wal", did: []string{join, promote},
			before: func(s *planeStage) {
				s.Config.Cluster.Etcd.Local.ExtraArgs = []config.Arg{{Name: "wal-dir", Value: "/srv/wal"}}
			}},
		{name: "one whose host was made again", member: &ran, did: replaced,
			says: phasetest.Line{"[WARNING]", `member "cp-2"`, "https://192.0.2.12:2380", "(/var/lib/etcd)", "Removing it", "learner"}},
		{name: "one that has lost its disk", member: &ran, pod: true, did: replaced},
		{name: "one that has lost its log alone", member: &ran, data: "x", at: "/var/lib/etcd/member/snap/db", pod: true, did: replaced},
		{name: "one that the kubelet has started on an empty disk", member: &ran, data: started, pod: true, did: replaced, says: phasetest.Line{"[WARNING]", "empty disk"}},
		{name: "one that is another by now", member: &ran, data: phasetest.LogOf(5, cluster, true), pod: true, did: replaced, says: phasetest.Line{"[WARNING]", "member 5", "removed"}},
		{name: "one that has another's data", member: &ran, data: phasetest.LogOf(1, cluster, true), pod: true, err: []string{"member 1", "cluster 7"}},
		{name: "one that has the data of another cluster", member: &ran, data: phasetest.LogOf(9, 8, true), pod: true, err: []string{"member 9", "cluster 8"}},
		{name: "data that nobody can read", member: &ran, data: "x", pod: true, err: []string{"/var/lib/etcd/member/wal", "which member"}},
		{name: "a learner that has lost its data", member: &learner, did: replaced},
		{name: "one of another name", member: &etcd.Member{ID: 9, Name: "old", PeerURL: peer}, did: []string{join}, err: []string{"called old"},
			before: func(s *planeStage) { s.etcd.Fail = map[string]error{"join": errors.New("it is called old")} }},
		{name: "one that answers", member: &ran, err: []string{`member "cp-2"`, "https://192.0.2.12:2379", "--apiserver-advertise-address"},
			before: func(s *planeStage) { delete(s.etcd.Down, "cp-2") }},
		{name: "it cannot leave", member: &ran, did: []string{leave}, err: []string{"`slipway etcd member remove 9`", "unhealthy cluster"},
			before: func(s *planeStage) { s.etcd.Fail = map[string]error{"leave": errors.New("unhealthy cluster")} }},
		{name: "the others have no quorum", member: &ran, err: []string{"no quorum", ": cp-1 works; cp-3 does not (connection refused)"},
			before: func(s *planeStage) { third(s); s.etcd.Down["cp-3"] = down }},
		{name: "there is no other", member: &ran, err: []string{"`slipway etcd recover`"}, before: func(s *planeStage) { s.etcd.List = s.etcd.List[1:] }},
		{name: "nobody can be asked how the others are", member: &ran, err: []string{"deadline exceeded"},
			before: func(s *planeStage) { s.etcd.Fail = map[string]error{"health": context.DeadlineExceeded} }},
		{name: "etcd has no quorum", data: own, err: []string{"no leader;", "none works; cp-1 does not (connection refused); cp-3 does not (connection refused)"},
			before: func(s *planeStage) {
				third(s)
				s.etcd.Down["cp-1"], s.etcd.Down["cp-3"] = down, down
				s.etcd.Fail = map[string]error{"list": errors.New("no leader")}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := preparedPlane(t)
			s.etcd.Down = map[string]error{"cp-2": down}
			path := cmp.Or(tt.at, phasetest.EtcdLog)
			if tt.pod {
				s.startedBefore(t, filepath.Dir(filepath.Dir(filepath.Dir(path))))
			}
			if tt.data != "" {
				s.Put(t, path, tt.data)
			}
			if tt.member != nil {
				s.etcd.List = append(s.etcd.List, *tt.member)
			}
			if tt.before != nil {
				tt.before(s)
			}
			s.etcdEnds(2)
			fact.Error(t, runEtcdJoin(t.Context(), s.Env), tt.err...)
			if diff := gocmp.Diff(tt.did, s.etcd.Did); diff != "" {
				t.Errorf("etcd was asked to (-want +got):\n%s", diff)
			}
			if tt.says != nil {
				s.SaidOnce(t, tt.says)
			}
			_, err := os.Stat(filepath.Join(s.Root, path))
			if left, want := err == nil, tt.data != "" && !slices.Contains(tt.did, leave); left != want {
				t.Errorf("%s is left: %t, want %t", path, left, want)
			}
		})
	}
}

// TestEtcdJoinAfterAWithdrawal: a join that was cut off while it withdrew its member leaves data, which the next run removes once etcd
// has ended. The data of a host that has been a control plane stays, and another cluster's.
func TestEtcdJoinAfterAWithdrawal(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	const cluster = 7
	refused := []string{"/var/lib/etcd/member/wal", "member 9"}
	for name, tt := range map[string]struct {
		data     string
		pod      bool // its static Pod is still here
		sighted  int  // how often its container is
		finished bool // the join has
		older    bool // than the join
		err      []string
	}{
		"before its static Pod was removed": {data: phasetest.LogOf(9, cluster, true), pod: true, sighted: 2},
		"while its etcd ended":              {data: phasetest.LogOf(9, cluster, true), sighted: 2},
		"while its data was removed":        {data: phasetest.LogOf(9, cluster, false)},
		"its etcd does not end":             {data: phasetest.LogOf(9, cluster, true), sighted: 1e9, err: []string{"etcd", "still running"}},
		"the join has finished":             {data: phasetest.LogOf(9, cluster, true), pod: true, finished: true, err: refused},
		"data from before the join":         {data: phasetest.LogOf(9, cluster, true), older: true, err: refused},
		"another cluster's data":            {data: phasetest.LogOf(9, 8, true), err: refused},
		"another member's data":             {data: phasetest.LogOf(1, cluster, true), err: []string{"member 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := preparedPlane(t)
			s.etcd.List[0].Cluster = cluster
			if tt.pod {
				s.startedBefore(t, ".")
			}
			if !tt.finished {
				s.Put(t, thisnode.JoinUnfinished(s.Config), "")
			}
			s.Put(t, phasetest.EtcdLog, tt.data)
			if log := filepath.Join(s.Root, filepath.Dir(phasetest.EtcdLog)); tt.older {
				phasetest.Age(t, log)
			}
			left := s.etcdEnds(tt.sighted)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if tt.sighted == 1e9 {
				cancel()
			}
			if tt.err == nil {
				s.passesCheck(t, preflight.EtcdDataCheck(s.Config))
			}
			fact.Error(t, checkData(ctx, s.Env, peer), tt.err...)
			_, err := os.Stat(filepath.Join(s.Root, phasetest.EtcdLog))
			if kept := err == nil; kept != (tt.err != nil) || !kept && *left > 0 || len(s.etcd.Did) > 0 {
				t.Errorf("its data is left: %v, its etcd for %d looks; etcd was asked to %q", kept, *left, s.etcd.Did)
			}
		})
	}
}

// passesCheck runs a preflight check of join.
func (s *planeStage) passesCheck(t *testing.T, name string) {
	t.Helper()
	found, err := CheckJoin(t.Context(), s.Env)
	phasetest.Fatal(t, err)
	i := slices.IndexFunc(found, func(r preflight.Result) bool { return r.Check == name })
	if i < 0 || found[i].Outcome() != preflight.OK {
		t.Errorf("%s: %+v", name, found)
	}
}

// TestLearnerThatStarts: the others know a learner's name before it has received anything. It has lost nothing.
func TestLearnerThatStarts(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	s := preparedPlane(t)
	s.etcd.Down = map[string]error{"cp-2": errors.New("connection refused")}
	s.startedBefore(t, ".")
	s.Put(t, phasetest.EtcdLog, phasetest.LogOf(9, 7, false))
	s.etcd.List = append(s.etcd.List, etcd.Member{ID: 9, Cluster: 7, Name: "cp-2", PeerURL: peer, Learner: true})
	s.FakeHost.On.Containers = func(context.Context, string, string, string) ([]host.Container, error) {
		s.Put(t, phasetest.EtcdLog, phasetest.LogOf(9, 7, true)) // it receives its first entry right after a look
		return []host.Container{{ID: "etcd"}}, nil
	}
	if err := checkData(t.Context(), s.Env, peer); err != nil || len(s.etcd.Did) > 0 || strings.Contains(s.Said.String(), "Removing it") {
		t.Errorf("%v; asked etcd to %q, said %q", err, s.etcd.Did, s.Said.String())
	}
}

// lateMembers can't be found until the API has a Pod of etcd.
type lateMembers struct {
	*phasetest.FakeMembers
	missing int // lookups that fail
	err     error
}

func (l *lateMembers) Members(ctx context.Context) ([]etcd.Member, error) {
	if l.missing--; l.missing >= 0 {
		return nil, errors.WithMessage(l.err, "find the endpoints of etcd")
	}
	return l.FakeMembers.Members(ctx)
}

func (l *lateMembers) Health(context.Context) ([]etcd.Health, error) { return nil, l.err }

// TestEtcdJoinRightAfterInit: the API doesn't have the etcd Pod of a brand-new control plane yet. Other errors were retried
// already.
func TestEtcdJoinRightAfterInit(t *testing.T) {
	const peer = "https://192.0.2.12:2380"
	for name, tt := range map[string]struct {
		missing int
		err     error
		want    []string
		says    phasetest.Line
	}{
		"soon":  {8, &thisnode.NoEtcdPodError{}, nil, phasetest.Line{"Waiting", "Pod", "etcd", "2m0s"}},
		"never": {1e9, &thisnode.NoEtcdPodError{Silent: []string{"etcd-cp-1"}}, []string{"etcd-cp-1", "2m0s"}, phasetest.Line{"Waiting"}},
		"down":  {1e9, errors.New("connection refused"), []string{"etcd: connection refused"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := preparedPlane(t)
			s.Etcd = &lateMembers{FakeMembers: s.etcd, missing: tt.missing, err: tt.err}
			synctest.Test(t, func(t *testing.T) {
				err := checkData(t.Context(), s.Env, peer)
				fact.Error(t, err, tt.want...)
			})
			if said := strings.Count(s.Said.String(), "Waiting"); said != min(len(tt.says), 1) {
				t.Errorf("said %q, want %q once", s.Said.String(), tt.says)
			}
			fact.In(t, s.Said.String(), tt.says...)
		})
	}
}

// startedBefore writes the static Pod of an etcd that an earlier run started with its data in dir.
func (s *planeStage) startedBefore(t *testing.T, dir string) {
	t.Helper()
	if err := writeStaticPod(t.Context(), s.Env, manifests.EtcdName, []manifests.Member{{Name: "cp-2", PeerURL: "https://192.0.2.12:2380"}}); err != nil {
		t.Fatal(err)
	}
	const path = "/etc/kubernetes/manifests/etcd.yaml"
	if dir != "." {
		s.Put(t, path, strings.ReplaceAll(s.Get(t, path), "path: /var/lib/etcd", "path: "+dir))
	}
}

// TestEtcdJoinOfARemadeHost: a member that lost its data is removed before any static Pod could start it, wherever the run is
// interrupted.
func TestEtcdJoinOfARemadeHost(t *testing.T) {
	s := newPlaneStage(t, phasetest.StoredPlane)
	if err := s.discoverPlane(t, phasetest.SomeKey); err != nil {
		t.Fatal(err)
	}
	s.etcd.List = append(s.etcd.List, etcd.Member{ID: 9, Name: "cp-2", PeerURL: "https://192.0.2.12:2380"})
	s.etcd.Down = map[string]error{"cp-2": errors.New("connection refused")}
	for _, cut := range []string{"leave", "join"} {
		s.etcd.Fail = map[string]error{cut: errors.New("killed")}
		if err := step.Run(t.Context(), s.Env, joinPlane(), step.Options{}); err == nil {
			t.Fatalf("it went on when killed at %s", cut)
		}
		if _, err := os.Stat(filepath.Join(s.Root, "/etc/kubernetes/manifests/etcd.yaml")); err == nil {
			t.Errorf("killed at %s, the run left an etcd without data that would start", cut)
		}
	}
	s.etcd.Fail = nil
	s.Play(t, joinPlane()...)
	if got := s.etcd.List; len(got) != 2 || got[1].Learner || got[1].Name != "cp-2" {
		t.Errorf("members %v", got)
	}
	if pod := s.Get(t, "/etc/kubernetes/manifests/etcd.yaml"); !strings.Contains(pod, "--initial-cluster-state=existing") {
		t.Error("etcd would start a cluster of its own")
	}
}

// TestEtcdLogOnItsOwnDisk: a patch may mount the log's directory from anywhere on the host, and the log is found there.
func TestEtcdLogOnItsOwnDisk(t *testing.T) {
	const pod = `apiVersion: v1
kind: Pod
spec:
  containers:
  - command: [etcd, --data-dir=/var/lib/etcd, --wal-dir=/var/lib/wal/etcd]
    volumeMounts:
    - {name: etcd-data, mountPath: /var/lib/etcd}
    - {name: all, mountPath: /var/lib}
    - {name: log, mountPath: %MOUNT%}
  volumes:
  - {name: etcd-data, hostPath: {path: /var/lib/etcd}}
  - {name: all, hostPath: {path: /srv/all}}
  - {name: log, hostPath: {path: /disk/wal}}
`
	for mount, want := range map[string]string{
		"/var/lib/wal/etcd": "/disk/wal", "/var/lib/wal/": "/disk/wal/etcd", "/var/lib/wal/etc": "/srv/all/wal/etcd",
	} {
		s := preparedPlane(t)
		s.Put(t, "/etc/kubernetes/manifests/etcd.yaml", strings.Replace(pod, "%MOUNT%", mount, 1))
		s.Put(t, want+"/0.wal", phasetest.LogOf(9, 7, true))
		if here, err := node.ReadEtcdData(s.Env); err != nil || here.Log != want || here.Member != 9 {
			t.Errorf("mounted at %s: %+v, %v", mount, here, err)
		}
	}
}
