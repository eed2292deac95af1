// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fakeapi"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

var initScenario = phasetest.Scenario{
	Name: "init",
	Prepare: func(t *testing.T, s *phasetest.Scene) error {
		s.API = phasetest.OwnAPI(s.Root, s.Spoil)
		return phasetest.WillMake(s.Root, phasetest.KubeletPEM, phasetest.RotatedPEM(t, "cp-1", time.Now().Add(time.Hour)))
	},
	Run:   phasetest.RunInit(Init),
	Reads: "/etc/kubernetes/kubelet.conf",
	Renews: []string{"PUT /api/v1/namespaces/kube-system/secrets/kubeadm-certs",
		"PUT /api/v1/namespaces/kube-system/secrets/bootstrap-token-" + ownerID(phasetest.CrashKey)},
}

var joinScenario = phasetest.Scenario{Name: "join", Prepare: phasetest.PrepareJoin, Run: phasetest.RunJoin(Join, DetectEarlierRun), Reads: "/var/lib/kubelet/config.yaml"}

var planeScenario = phasetest.Scenario{Name: "join-control-plane", Prepare: preparePlane, Run: phasetest.RunJoin(Join, DetectEarlierRun), Reads: "/var/lib/kubelet/config.yaml"}

// preparePlane creates a cluster of one control plane that shares its certificates, and sets the files the second one's kubelet
// writes.
func preparePlane(t *testing.T, s *phasetest.Scene) error {
	first := phasetest.NewStage(t, phasetest.CrashDocuments)
	first.Play(t, certificates())
	shared := map[string][]byte{}
	for key, path := range manifests.SharedFiles(first.Config) {
		shared[key] = []byte(first.Get(t, path))
	}
	data, err := manifests.EncryptCerts(shared, phasetest.CrashKey, rand.Reader)
	if err != nil {
		return err
	}
	server, err := tls.X509KeyPair([]byte(first.Get(t, "/etc/kubernetes/pki/apiserver.crt")), []byte(first.Get(t, "/etc/kubernetes/pki/apiserver.key")))
	if err != nil {
		return err
	}
	s.API = fakeapi.New(&tls.Config{Certificates: []tls.Certificate{server}})
	s.API.Spoil = s.Spoil
	for path, obj := range map[string]any{
		"configmaps/kubeadm-config": fixture.ConfigMap("kubeadm-config", "ClusterConfiguration", phasetest.StoredPlane),
		"configmaps/kubelet-config": fixture.ConfigMap("kubelet-config", "kubelet", fixture.KubeletConfiguration),
		"secrets/kubeadm-certs":     &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "kubeadm-certs", Namespace: "kube-system"}, Data: data},
	} {
		s.API.Put("/api/v1/namespaces/kube-system/"+path, obj)
	}
	s.API.Put("/api/v1/nodes/cp-2", phasetest.ReportingNode("cp-2"))
	return errors.Join(s.KubeletOf(t, "cp-2", []byte(first.Get(t, "/etc/kubernetes/pki/ca.crt"))),
		os.MkdirAll(s.Root+"/var/fake/etcd", 0o755), os.WriteFile(s.Root+"/join.yaml", []byte(crashPlaneDocument), 0o600))
}

var crashPlaneDocument = strings.Replace(phasetest.CrashJoinDocument, "worker-1", "cp-2", 1) + `
controlPlane:
  localAPIEndpoint: {advertiseAddress: 192.0.2.12}
  certificateKey: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
`

// TestTwoRuns: a run that finds another at work names it at once.
func TestTwoRuns(t *testing.T) {
	s := phasetest.NewScene(t, initScenario)
	defer s.Close()
	working, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.API.SpoilFirst(func(*http.Request) fakeapi.Fault {
		once.Do(func() { close(working); <-release })
		return nil
	})
	first := s.Command(io.Discard)
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	<-working
	started := time.Now()
	err := s.Run(t.Context(), phasetest.NewLastingHost(s.Root), s.API.Listener.Addr().String(), io.Discard)
	if took := time.Since(started); took > time.Minute {
		t.Errorf("it took %s", took)
	}
	var locked *host.LockedError
	if !errors.As(err, &locked) || locked.PID != first.Process.Pid || !strings.Contains(err.Error(), fmt.Sprintf("pid %d", first.Process.Pid)) || locked.Command == "" {
		t.Errorf("the second run: %v, and the first is process %d", err, first.Process.Pid)
	}
	close(release)
	if err := first.Wait(); err != nil {
		t.Errorf("the first run: %v", err)
	}
}

var scenarios = []phasetest.Scenario{initScenario, joinScenario, planeScenario}

func TestMain(m *testing.M) { phasetest.Main(m, scenarios...) }

func TestCrash(t *testing.T) { phasetest.KillEach(t, scenarios) }

func TestHostFaults(t *testing.T) { phasetest.RefuseEach(t, scenarios) }

func TestAPIFaults(t *testing.T) { phasetest.SpoilEach(t, scenarios) }

func TestHungUnits(t *testing.T) { phasetest.HangEach(t, scenarios) }
