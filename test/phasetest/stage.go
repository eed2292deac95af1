// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phasetest

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

// Edit changes objects the first run left in the API, and deletes CoreDNS's workload.
func (s *Stage) Edit(t *testing.T) {
	t.Helper()
	for name, key := range Edited {
		cm := SystemConfigMap(t, s, name)
		cm.Data[key] = "edited"
		if err := s.API.Ensure(t.Context(), cm); err != nil {
			t.Fatal(err)
		}
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "coredns"}}
	if err := s.API.EnsureAbsent(t.Context(), deployment); err != nil {
		t.Fatal(err)
	}
}

// Flagged gives the API server another flag, as a patch would: its static Pod still counts as unedited.
func (s *Stage) Flagged(t *testing.T, flag string) {
	t.Helper()
	text := strings.Replace(s.Get(t, APIServerManifest), "    - --secure-port=", "    - "+flag+"\n    - --secure-port=", 1)
	fact.In(t, text, flag)
	_, err := s.FakeHost.WriteFile(APIServerManifest, []byte(text), 0o600)
	Fatal(t, err)
}

// Patched returns etcd's static Pod, before and after a flag is added.
func (s *Stage) Patched(t *testing.T) (before, wanted []byte) {
	t.Helper()
	text := s.Get(t, s.Config.Paths.StaticPod(manifests.EtcdName))
	after := strings.Replace(text, "    - --name=", "    - --log-level=warn\n    - --name=", 1)
	if after == text {
		t.Fatalf("no --name in\n%s", text)
	}
	return []byte(text), []byte(after)
}

func (s *Stage) Append(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(s.Root, path), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Stage has everything for tests of single phases: a host in a directory whose answers the test sets, an API that only records,
// and the output.
type Stage struct {
	*step.Env
	FakeHost *teststage.Host
	Root     string
	API      *cluster.Plan
	Done     []string // to the API
	Said     bytes.Buffer
	Results  bytes.Buffer
}

// NewStage loads the documents as `init --config` does.
func NewStage(t *testing.T, documents string) *Stage {
	t.Helper()
	h, root := NewDirHost(t)
	s := &Stage{FakeHost: h, Root: root}
	s.API = cluster.NewPlan(func(a cluster.Action) {
		s.Done = append(s.Done, strings.Join(strings.Fields(string(a.Verb)+" "+a.Kind+" "+a.Name), " "))
	}, nil)
	s.Env = &step.Env{Config: fixture.Node(t, documents), Host: s.FakeHost, Cluster: s.API, Etcd: etcd.NewPlan(func(etcd.Action) {}), UI: ui.NewLines(&s.Said, &s.Results)}
	return s
}

func (s *Stage) Put(t *testing.T, path, text string) {
	t.Helper()
	fixture.Put(t, s.Root, path, text)
}

func (s *Stage) Get(t *testing.T, path string) string {
	t.Helper()
	return fixture.Get(t, s.Root, path)
}

// Play runs phases, which must succeed.
func (s *Stage) Play(t *testing.T, workflow ...step.Phase) {
	t.Helper()
	if err := step.Run(t.Context(), s.Env, workflow, step.Options{}); err != nil {
		t.Fatal(err)
	}
}

// Pick picks phases of a workflow by their names.
func Pick(workflow []step.Phase, names ...string) (picked []step.Phase) {
	for _, p := range workflow {
		if slices.Contains(names, p.Name) {
			p.Needs = nil
			picked = append(picked, p)
		}
	}
	if len(picked) != len(names) {
		panic(fmt.Sprintf("of %q, the workflow has %d", names, len(picked)))
	}
	return picked
}

func (s *Stage) Cert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	cert, err := certs.FirstCert([]byte(s.Get(t, path)))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Certified writes a client certificate signed by the cluster's CA, as a node's kubelet does.
func (s *Stage) Certified(t *testing.T, node string) {
	t.Helper()
	s.Rotated(t, KubeletPEM, node, time.Now().Add(time.Hour))
}

// Graces records each container's time to stop.
func (s *Stage) Graces() map[string]time.Duration {
	grace := map[string]time.Duration{}
	s.FakeHost.On.StopContainer = func(_ context.Context, _, id string, given time.Duration) error {
		grace[id] = given
		s.FakeHost.Runs(time.Now().Add(time.Second), id)
		return nil
	}
	return grace
}

func (s *Stage) Remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.Root, path)); err != nil {
		t.Fatal(err)
	}
}

func (s *Stage) EditPod(t *testing.T, component, old, text string) {
	t.Helper()
	path := "/etc/kubernetes/manifests/" + component + ".yaml"
	before := s.Get(t, path)
	if !strings.Contains(before, old) {
		t.Fatalf("%s does not have %q:\n%s", path, old, before)
	}
	s.Put(t, path, strings.Replace(before, old, text, 1))
}

// HasKubelet adds this host's Node, with the kubelet's version.
func (s *Stage) HasKubelet(t *testing.T, version string) {
	t.Helper()
	node := cluster.NewNode("cp-1")
	node.Status.NodeInfo.KubeletVersion = version
	if s.Config.ControlPlane {
		node.Labels = map[string]string{cluster.LabelControlPlane: ""}
	}
	if err := s.API.Ensure(t.Context(), node); err != nil {
		t.Fatal(err)
	}
}

// RunsPods makes the kubelet run the static Pods. Containers with an image in ended have ended at once; containers with an image
// in loading run, but don't answer.
func (s *Stage) RunsPods(ended, loading []string) {
	s.FakeHost.On.Containers = func(_ context.Context, _, _, component string) ([]host.Container, error) {
		image := s.Image(component)
		if slices.Contains(ended, image) {
			return nil, nil
		}
		return []host.Container{{ID: component, Image: image, Created: s.FakeHost.Now()}}, nil
	}
	s.FakeHost.On.Probe = func(_ context.Context, p host.Probe) error {
		component := manifests.EtcdName
		if strings.Contains(p.URL, ":6443") {
			component = manifests.APIServerName
		}
		if image := s.Image(component); slices.Contains(ended, image) || slices.Contains(loading, image) {
			return errors.New("connection refused")
		}
		return nil
	}
}

func (s *Stage) Image(component string) string {
	data, err := s.FakeHost.ReadFile(s.Config.Paths.StaticPod(component))
	if err != nil {
		return ""
	}
	return quickImageOf(data)
}
