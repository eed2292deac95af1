// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"encoding/base64"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestControlPlaneKubeletIsHastened: a kubelet refused by its own API server while that started is restarted once the server is
// ready, unless it had its certificate before or its node is registered. A worker's kubelet isn't restarted.
func TestControlPlaneKubeletIsHastened(t *testing.T) {
	const restart = "restart kubelet.service"
	for _, tt := range []struct {
		name                         string
		plane, has, registered, want bool
	}{
		{"control plane", true, false, false, true},
		{"control plane that had joined", true, true, false, false},
		{"control plane with a node", true, false, true, false},
		{"worker", false, false, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
			s.Config.ControlPlane = tt.plane
			if tt.registered {
				phasetest.Fatal(t, s.API.Ensure(t.Context(), cluster.NewNode(s.Config.Name)))
			}
			s.Cluster = s.API
			waitsForCertificate(t, s, tt.has)
			if restarted := slices.Contains(s.FakeHost.Jobs, restart); restarted != tt.want {
				t.Errorf("restarted: %v", restarted)
			}
		})
	}
}

// waitsForCertificate runs the wait for the kubelet's certificate. Unless the kubelet already has a certificate, it gets it
// during the wait.
func waitsForCertificate(t *testing.T, s *phasetest.JoinStage, has bool) {
	t.Helper()
	if has {
		s.Bootstrapped(t, s.CA, "cp-1", time.Now().Add(time.Hour))
	}
	waited := make(chan error, 1)
	go func() { waited <- awaitKubeletConf(t.Context(), s.Env) }()
	if !has {
		time.Sleep(2 * node.ReadyInterval)
		s.Bootstrapped(t, s.CA, "cp-1", time.Now().Add(time.Hour))
	}
	if err := <-waited; err != nil {
		t.Error(err)
	}
}

// TestLateCertificateHastensWorker: by the time a kubelet gets a late certificate, it retries everything else only every few
// seconds.
func TestLateCertificateHastensWorker(t *testing.T) {
	for name, tt := range map[string]struct{ plane, has, registered, want bool }{
		"worker":                        {want: true},
		"worker with a Node":            {registered: true},
		"worker that had a certificate": {has: true},
		"control plane that had one":    {plane: true, has: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
			s.Config.ControlPlane, s.Cluster = tt.plane, s.API
			var looks atomic.Int64 // two seconds pass after each look at the clock
			s.FakeHost.On.Now = func() time.Time { return time.Now().Add(time.Duration(looks.Add(1)) * 2 * time.Second) }
			if tt.registered {
				phasetest.Fatal(t, s.API.Ensure(t.Context(), cluster.NewNode(s.Config.Name)))
			}
			waitsForCertificate(t, s, tt.has)
			if restarted := slices.Contains(s.FakeHost.Jobs, "restart kubelet.service"); restarted != tt.want {
				t.Errorf("restarted: %v", restarted)
			}
		})
	}
}

// TestHasteningEndsWithTheWait: an API server that never becomes ready doesn't prolong the wait.
func TestHasteningEndsWithTheWait(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return errors.New("refused") }
	ctx, cancel := context.WithTimeout(t.Context(), 2*node.ReadyInterval)
	defer cancel()
	if restartWhenReady(ctx, s.Env); len(s.FakeHost.Jobs) > 0 {
		t.Errorf("jobs %v", s.FakeHost.Jobs)
	}
}

// TestWaitBootstrapHeedsCertDir: the kubelet writes its certificate to its flag's directory, over an expired one.
func TestWaitBootstrapHeedsCertDir(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Config.Timeouts.TLSBootstrap = 150 * time.Millisecond
	s.Config.KubeletExtraArgs = []config.Arg{{Name: "cert-dir", Value: "/other/pki"}}
	const pem = "/other/pki/kubelet-client-current.pem"
	s.Put(t, phasetest.KubeletConf, fixture.Kubeconfig(s.CA, "client-certificate: "+pem))
	fact.Error(t, awaitKubeletConf(t.Context(), s.Env), pem, "not exist")
	s.Rotated(t, pem, "cp-1", time.Now().Add(-time.Minute))
	fact.Error(t, awaitKubeletConf(t.Context(), s.Env), pem+":", "expired")
	s.Put(t, pem, string(certs.EncodeCerts(fixture.Signed(t, s.CA, "system:node:cp-1", time.Now().Add(time.Hour)).Cert)))
	if err := awaitKubeletConf(t.Context(), s.Env); err != nil {
		t.Error(err)
	}
}

// TestWaitBootstrapIsNotDeceived: the wait ends only with a certificate for the name the kubelet registers. Only API servers know
// who may sign it.
func TestWaitBootstrapIsNotDeceived(t *testing.T) {
	later := time.Now().Add(time.Hour)
	for _, tt := range []struct {
		name string
		args []config.Arg
		make func(t *testing.T, s *phasetest.JoinStage)
		want string // in the error, if any
	}{
		{"a CA that API servers alone know", nil, func(t *testing.T, s *phasetest.JoinStage) { s.Rotated(t, phasetest.KubeletPEM, "cp-1", later) }, ""},
		{"another node", nil, func(t *testing.T, s *phasetest.JoinStage) { s.Bootstrapped(t, s.CA, "cp-9", later) }, `node "cp-9", not "cp-1"`},
		{"the name that a flag gives", []config.Arg{{Name: "hostname-override", Value: "CP-9"}},
			func(t *testing.T, s *phasetest.JoinStage) { s.Bootstrapped(t, s.CA, "cp-9", later) }, ""},
		{"the name that an administrator's flag gives", nil, func(t *testing.T, s *phasetest.JoinStage) {
			s.Put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--hostname-override=CP-9\n")
			s.Bootstrapped(t, s.CA, "cp-9", later)
		}, ""},
		{"an administrator's flag that this kubelet does not have", nil, func(t *testing.T, s *phasetest.JoinStage) {
			s.Put(t, "/etc/sysconfig/kubelet", "KUBELET_EXTRA_ARGS=--hostname-override=cp-9\n")
			s.Bootstrapped(t, s.CA, "cp-1", later)
		}, ""},
		{"a name that systemd fills in", nil, func(t *testing.T, s *phasetest.JoinStage) {
			s.Put(t, "/etc/systemd/system/kubelet.service.d/20-name.conf", "[Service]\nEnvironment=KUBELET_EXTRA_ARGS=--hostname-override=%H\n")
			s.Bootstrapped(t, s.CA, "cp-9", later)
		}, ""},
		{"a directory that an administrator's flag gives", nil, func(t *testing.T, s *phasetest.JoinStage) {
			s.Put(t, "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=\"--cert-dir=/other/pki --v=2\"\n")
			s.Rotated(t, "/other/pki/kubelet-client-current.pem", "cp-1", later)
		}, ""},
		{"a CA that replaces the old one", nil, func(t *testing.T, s *phasetest.JoinStage) {
			next := fixture.Signed(t, fixture.Pair{}, "kubernetes", later)
			s.Put(t, "/etc/kubernetes/pki/ca.crt", string(certs.EncodeCerts(s.CA.Cert, next.Cert)))
			s.Put(t, phasetest.KubeletPEM, string(certs.EncodeCerts(fixture.Signed(t, next, "system:node:cp-1", later).Cert)))
			s.Config.Join = &config.Join{CAPath: "/etc/kubernetes/pki/ca.crt"}
		}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewJoinStage(t)
			s.Config.Timeouts.TLSBootstrap, s.Config.KubeletExtraArgs = 10*time.Second, tt.args
			if tt.want != "" {
				s.Config.Timeouts.TLSBootstrap = 150 * time.Millisecond
			}
			s.Put(t, phasetest.KubeletConf, fixture.Kubeconfig(s.CA, "client-certificate: "+phasetest.KubeletPEM))
			tt.make(t, s)
			err := awaitKubeletConf(t.Context(), s.Env)
			if tt.want == "" && err != nil || !strings.Contains(phasetest.Message(err), tt.want) {
				t.Errorf("error %q, want %q", phasetest.Message(err), tt.want)
			}
		})
	}
}

// TestWaitBootstrapWithoutRotation: a kubelet without rotation never copies the certificate in kubelet.conf to a file.
func TestWaitBootstrapWithoutRotation(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	s.Config.Timeouts.TLSBootstrap = 10 * time.Second
	s.Put(t, "/var/lib/kubelet/config.yaml", "rotateCertificates: false")
	cert := certs.EncodeCerts(fixture.Signed(t, s.CA, "system:node:cp-1", time.Now().Add(time.Hour)).Cert)
	s.Put(t, phasetest.KubeletConf, fixture.Kubeconfig(s.CA, "client-certificate-data: "+base64.StdEncoding.EncodeToString(cert)))
	if err := awaitKubeletConf(t.Context(), s.Env); err != nil {
		t.Error(err)
	}
}

// TestBootstrapCredentialsStayUntilTheKubeletReports: a certificate alone doesn't mean the node has joined.
func TestBootstrapCredentialsStayUntilTheKubeletReports(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	s.FakeHost.On.Probe = func(context.Context, host.Probe) error { return nil }
	phasetest.Fatal(t, s.Discover(t))
	s.Put(t, "/etc/kubernetes/bootstrap-kubelet.conf", "x")
	s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
	api := &phasetest.Marked{Plan: s.API, Err: errors.New("the kubelet of Node worker-1 has not reported")}
	s.Cluster = api
	if err := runKubeletWaitBootstrap(t.Context(), s.Env); phasetest.Message(err) != api.Err.Error() {
		t.Errorf("error %q", phasetest.Message(err))
	}
	s.Rotated(t, phasetest.KubeletPEM, "worker-1", time.Now().Add(time.Hour))
	err := runKubeletWaitBootstrap(t.Context(), s.Env)
	if !errors.Is(err, api.Err) {
		t.Errorf("with another cluster's certificate: %q", phasetest.Message(err))
	}
	fact.Error(t, err, "no CA", phasetest.KubeletPEM+` (issuer "system:node:worker-1")`)
	if strings.Contains(s.Said.String(), "has joined") || s.Get(t, "/etc/kubernetes/bootstrap-kubelet.conf") != "x" {
		t.Errorf("said:\n%s", s.Said.String())
	}
	if api.Name != "worker-1" || api.Since.Sub(s.Config.Join.Began).Abs() > time.Second || api.Since.IsZero() {
		t.Errorf("waited for %q since %s", api.Name, api.Since)
	}
	s.Bootstrapped(t, s.CA, "worker-1", time.Now().Add(time.Hour))
	unsynced := errors.New("a power cut may take the certificate")
	s.FakeHost.Before = func(_ context.Context, order string) error {
		if order == "sync "+phasetest.KubeletPEM {
			return unsynced
		}
		return nil
	}
	api.Err = nil
	if err := runKubeletWaitBootstrap(t.Context(), s.Env); !errors.Is(err, unsynced) || s.Get(t, "/etc/kubernetes/bootstrap-kubelet.conf") != "x" {
		t.Errorf("with a certificate that isn't on disk: error %v", err)
	}
}

// TestKubeletThatDoesNotRegister: an administrator creates its Node, maybe later, so join doesn't wait for its report.
func TestKubeletThatDoesNotRegister(t *testing.T) {
	s := phasetest.NewJoinStage(t)
	api := &phasetest.Marked{Plan: s.API, Err: errors.New("not registered")}
	s.Cluster = api
	s.Put(t, "/var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\nregisterNode: false\n")
	if err := awaitReport(t.Context(), s.Env, time.Now()); err != nil || api.Name != "" || !strings.Contains(s.Said.String(), "registerNode: false") {
		t.Errorf("%v, waited for %q, said:\n%s", err, api.Name, s.Said.String())
	}
}
