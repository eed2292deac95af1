// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

func TestKubeletFinalize(t *testing.T) {
	failure := func(facts ...string) []string {
		return append([]string{"client certificate", "`journalctl -u kubelet`", phasetest.KubeletPEM}, facts...)
	}
	later := time.Now().Add(time.Hour)
	tests := []struct {
		name string
		make func(t *testing.T, s *phasetest.Stage)
		jobs []string
		err  []string
	}{
		{name: "the certificate is there", make: func(t *testing.T, s *phasetest.Stage) { s.Rotated(t, phasetest.KubeletPEM, "cp-1", later) },
			jobs: []string{"sync " + phasetest.KubeletPEM, "write kubelet.conf", "restart kubelet.service"}},
		{name: "the certificate does not come", err: failure("not exist", "deadline exceeded")},
		{name: "one that has expired", make: func(t *testing.T, s *phasetest.Stage) {
			s.Rotated(t, phasetest.KubeletPEM, "cp-1", time.Now().Add(-time.Minute))
		},
			err: failure("expired")},
		{name: "one of another node", make: func(t *testing.T, s *phasetest.Stage) { s.Rotated(t, phasetest.KubeletPEM, "cp-9", later) },
			err: failure(`node "cp-9", not "cp-1"`, "deadline exceeded")},
		{name: "one of an earlier cluster", make: func(t *testing.T, s *phasetest.Stage) {
			s.Put(t, phasetest.KubeletPEM, phasetest.RotatedPEM(t, "cp-1", later))
		},
			err: failure("no CA", `issuer "system:node:cp-1"`, "deadline exceeded")},
		{name: "none at all", make: func(t *testing.T, s *phasetest.Stage) { s.Put(t, phasetest.KubeletPEM, "x") }, err: failure("PEM form")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+phasetest.ShortWaits+fixture.ClusterDocument)
			s.Play(t, certsCA(), kubeconfigs())
			before := s.Get(t, phasetest.KubeletConf)
			if tt.make != nil {
				tt.make(t, s)
			}
			s.FakeHost.Jobs = nil
			s.FakeHost.Before = func(_ context.Context, order string) error {
				if strings.HasPrefix(order, "sync ") {
					s.FakeHost.Jobs = append(s.FakeHost.Jobs, order)
				}
				return nil
			}
			err := kubelet.EnableClientCertRotation(t.Context(), s.Env)
			fact.Error(t, err, tt.err...)
			if diff := cmp.Diff(tt.jobs, s.FakeHost.Jobs); diff != "" {
				t.Errorf("jobs (-want +got):\n%s", diff)
			}
			after := s.Get(t, phasetest.KubeletConf)
			changed := strings.Contains(after, "client-certificate: "+phasetest.KubeletPEM) && !strings.Contains(after, "client-key-data")
			if changed != (tt.err == nil) || !changed && after != before {
				t.Errorf("kubelet.conf changed: %v", changed)
			}
			if !changed {
				return
			}
			s.FakeHost.Jobs = nil
			s.Play(t, kubelet.Finalize())
			if len(s.FakeHost.Jobs) > 0 || s.Get(t, phasetest.KubeletConf) != after {
				t.Errorf("a second run did %v", s.FakeHost.Jobs)
			}
			s.FakeHost.Has.Time = later.Add(time.Hour)
			err = kubelet.EnableClientCertRotation(t.Context(), s.Env)
			fact.Error(t, err, phasetest.KubeletPEM+":", "expired")
			fact.In(t, fault.Remedy(err), "`slipway certs renew all --restart`")
		})
	}
}

func TestKubeletFinalizeFaults(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	err := kubelet.EnableClientCertRotation(t.Context(), s.Env)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %q", phasetest.Message(err))
	}
	fact.Error(t, err, phasetest.KubeletConf)
	s.Put(t, phasetest.KubeletConf, "client-key-data: hush")
	err = kubelet.EnableClientCertRotation(t.Context(), s.Env)
	fact.Error(t, err, phasetest.KubeletConf+":", "kubeconfig")
	fact.NotIn(t, phasetest.Message(err), "hush")
}

// TestKubeletFinalizeWithoutInit: without an init system, it asks the user to restart the kubelet.
func TestKubeletFinalizeWithoutInit(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+phasetest.ShortWaits+fixture.ClusterDocument)
	s.Play(t, certsCA(), kubeconfigs())
	s.Rotated(t, phasetest.KubeletPEM, "cp-1", time.Now().Add(time.Hour))
	s.FakeHost.Fail["restart kubelet.service"] = host.ErrNoSystemd
	s.FakeHost.Fail["Unit"] = host.ErrNoSystemd
	s.Play(t, kubelet.Finalize())
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "not restarted"})
	fact.In(t, phasetest.After(t, s.Said.String(), "not restarted"), "[kubelet-finalize] [WARNING]   restart it")
	fact.In(t, s.Get(t, phasetest.KubeletConf), phasetest.KubeletPEM)
	s.Play(t, kubelet.Finalize())
	s.SaidOnce(t, phasetest.Line{"[WARNING]", "cannot tell", phasetest.KubeletConf})
}

// TestKubeletFinalizeHeedsFlags: the last flag that names a certificate directory counts. If nothing rotates the certificates, it
// doesn't wait.
func TestKubeletFinalizeHeedsFlags(t *testing.T) {
	const patched = fixture.InitDocument + "patches: {directory: /patches}\n" + fixture.ClusterDocument
	const off, on = "{name: rotate-certificates, value: 'false'}", "{name: rotate-certificates, value: 'true'}"
	for _, tt := range []struct{ name, documents, patch, pem string }{
		{"another directory", phasetest.WithKubeletFlags("{name: cert-dir, value: /a}, {name: cert-dir, value: /other/pki}"), "", "/other/pki/kubelet-client-current.pem"},
		{"off by flag", phasetest.WithKubeletFlags(off), "", ""},
		{"on by a later flag", phasetest.WithKubeletFlags(off + ", " + on), "", phasetest.KubeletPEM},
		{"off by patch", patched, "rotateCertificates: false", ""},
		{"a patch that says nothing of it", patched, "maxPods: 17", phasetest.KubeletPEM},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, _ := phasetest.WaitStage(t, tt.documents)
			s.Config.Timeouts.TLSBootstrap = 150 * time.Millisecond
			s.Put(t, "/patches/kubeletconfiguration.yaml", tt.patch)
			s.Play(t, certsCA(), kubeconfigs(), kubelet.Start())
			s.FakeHost.Jobs = nil
			if tt.pem != "" {
				s.Rotated(t, tt.pem, "cp-1", time.Now().Add(time.Hour))
			}
			s.Play(t, kubelet.Finalize())
			conf := s.Get(t, phasetest.KubeletConf)
			if tt.pem == "" {
				if !strings.Contains(conf, "client-key-data") || len(s.FakeHost.Jobs) > 0 {
					t.Errorf("jobs %v", s.FakeHost.Jobs)
				}
				s.SaidOnce(t, phasetest.Line{"Leaving " + phasetest.KubeletConf, "(rotateCertificates)"})
				return
			}
			if !strings.Contains(conf, "client-certificate: "+tt.pem) {
				t.Errorf("kubelet.conf does not name %s", tt.pem)
			}
		})
	}
}
