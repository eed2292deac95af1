// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/bootstrap"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var scenarios = []phasetest.Scenario{{Name: "etcd-restore", Prepare: prepareRestore, Run: runRestore,
	Reads: "/var/lib/kubelet/config.yaml", Renews: []string{phasetest.LeaseWrite}}, bareScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }

func TestAPIFaults(t *testing.T) { phasetest.SpoilEach(t, scenarios) }

func TestHungUnits(t *testing.T) { phasetest.HangEach(t, scenarios) }

const taken = "/root/snapshot.db"

// past is before the containers that a run starts.
var past = time.Date(2026, 2, 4, 0, 0, 0, 0, time.UTC)

// savedPlane is a control plane with data of its etcd, a snapshot without a record, and a sealed one.
var savedPlane = phasetest.Past{Init: bootstrap.Init, Then: func(h *phasetest.LastingHost) error {
	snapshot, err := os.ReadFile(fixture.Path("internal/etcd/testdata/snapshot-3.6.db"))
	if err != nil {
		return err
	}
	data := h.Root + "/var/lib/etcd/member/snap"
	return errors.Join(os.MkdirAll(data, 0o700), os.WriteFile(data+"/db", []byte("new"), 0o600), h.Note(phasetest.HasEtcdData),
		os.MkdirAll(h.Root+filepath.Dir(taken), 0o700), os.WriteFile(h.Root+taken, snapshot, 0o600), h.StartPods(), seal(h))
}}

func prepareRestore(t *testing.T, s *phasetest.Scene) error {
	if err := savedPlane.Begin(t, s); err != nil {
		return err
	}
	s.API.Put("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/slipway-upgrade", // of an earlier workflow
		map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": map[string]any{"name": "slipway-upgrade", "namespace": "kube-system"}, "spec": map[string]any{}})
	s.API.SpoilFirst(renewsLeases)
	return nil
}

// renewsLeases plays kubelets and controllers: they have renewed their Leases whenever somebody looks.
func renewsLeases(r *http.Request) fakeapi.Fault {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/leases/") || strings.HasSuffix(r.URL.Path, "/slipway-upgrade") {
		return nil
	}
	return func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
		fmt.Fprintf(w, `{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": %q}, "spec": {"renewTime": %q}}`,
			path.Base(r.URL.Path), time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
}

// runRestore runs the command until it has succeeded once.
func runRestore(ctx context.Context, h *phasetest.LastingHost, endpoint string, say io.Writer) error {
	h.Has.Time = past
	exists := func(path string) bool {
		_, err := h.Lstat(path)
		return err == nil
	}
	if exists("/etc/kubernetes/manifests/etcd.yaml") && !exists("/var/lib/etcd/member") {
		return errors.New("had the node been booted now, etcd would have begun a cluster without data")
	}
	n, err := nodeOf(h)
	if err != nil {
		return err
	}
	if exists("/var/lib/etcd/member.before-restore-2026-02-04-00-00-00") && !exists(node.EtcdJournalPath(n.Paths)) {
		return nil
	}
	api := cluster.New(phasetest.CrashOptions(h, endpoint, true, config.DefaultAdminKubeconfig, "", cmp.Or(h.Limit, 30*time.Second)))
	r, err := NewRestore(ctx, &step.Env{Config: n, Host: h, Cluster: api, Etcd: h.Members(), UI: ui.NewLines(say, io.Discard)}, Source{File: taken})
	if err != nil {
		return err
	}
	return phasetest.CrashRun(ctx, n, h, endpoint, say, r.Phases(), nil)
}

// nodeOf is the node by its own files.
func nodeOf(h host.Host) (*config.Node, error) {
	opts := config.Options{Facts: config.HostFacts{Hostname: "cp-1"}, Placeholders: true, AnyVersion: true}
	n, _, err := config.LoadCluster(config.DefaultCluster(), nil, nil, thisnode.Current(h), opts)
	return n, err
}

// TestRestorePlan: a plan changes nothing, and is what the run does.
func TestRestorePlan(t *testing.T) {
	s := phasetest.NewScene(t, scenarios[0])
	defer s.Close()
	h := phasetest.NewLastingHost(s.Root)
	defer h.Real.Close()
	h.Has.Time = past
	n, err := nodeOf(h)
	phasetest.Fatal(t, err)
	before := s.Stamps(t)
	follow := func(e *step.Env) {
		t.Helper()
		e.Config, e.UI = n, phasetest.QuietUI()
		r, err := NewRestore(t.Context(), e, Source{File: taken})
		phasetest.Fatal(t, err)
		phasetest.Fatal(t, step.Run(t.Context(), e, r.Phases(), step.Options{Serial: true}))
	}
	api := cluster.New(phasetest.CrashOptions(h, s.API.Listener.Addr().String(), true, config.DefaultAdminKubeconfig, "", 30*time.Second))
	planned, done := &phasetest.Record{}, &phasetest.Record{}
	follow(&step.Env{Host: plan.NewOverlay(h, planned.OnHost), Etcd: etcd.NewLivePlan(planned.OnEtcd, h.Members()), Cluster: cluster.NewPlan(func(cluster.Action) {}, api)})
	if diff := gocmp.Diff(before, s.Stamps(t)); diff != "" {
		t.Errorf("the plan changed (-before +after):\n%s", diff)
	}
	follow(&step.Env{Host: plan.NewRecorder(h, done.OnHost), Etcd: h.Members(), Cluster: api})
	if diff := gocmp.Diff(planned.AsSet(), done.AsSet()); diff != "" {
		t.Errorf("the run isn't the plan (-plan +run):\n%s", diff)
	}
	fact.In(t, strings.Join(planned.Titles(), "\n"), "/var/lib/etcd/member.new", "/var/lib/etcd/member.before-restore-", etcdPod)
}
