// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// takeBack runs `reconfigure --revert`.
func takeBack(t *testing.T, s *phasetest.Stage, ignored ...string) error {
	t.Helper()
	l := loaderOn(s)
	l.Self.NodeRegistration.IgnorePreflightErrors = ignored
	r, _, err := NewRevert(t.Context(), s.Host, l)
	if err != nil {
		return err
	}
	s.Config, r.Program = r.Node, "/usr/bin/slipway"
	return step.Run(t.Context(), s.Env, r.RevertPhases(), step.Options{})
}

// TestRevert: files and configuration are as before the change. The same command again changes nothing; another change can be taken
// back.
func TestRevert(t *testing.T) {
	s := live(t)
	fact.Error(t, takeBack(t, s), "no change")
	were, had := files(t, s), configuration(t, s)
	for range 2 {
		phasetest.Fatal(t, run(t, s))
		isAfter(t, s)
		phasetest.Fatal(t, takeBack(t, s))
		if diff := cmp.Diff(were, files(t, s)) + cmp.Diff(had, configuration(t, s)); diff != "" {
			t.Errorf("files and configuration:\n%s", diff)
		}
		if got := state(t, s); got != trial.Completed || s.Holder(t) != "" || len(guarded(t, s)) > 0 {
			t.Errorf("taking it back is %q, %q holds the Lease, and there are still %q", got, s.Holder(t), guarded(t, s))
		}
		stamps := phasetest.Stamps(t, s.Root)
		s.Done = nil
		phasetest.Fatal(t, takeBack(t, s))
		if diff := cmp.Diff(stamps, phasetest.Stamps(t, s.Root)); diff != "" || len(s.Done) > 0 {
			t.Errorf("the second time, did %q:\n%s", s.Done, diff)
		}
	}
}

// silentAPI doesn't answer.
type silentAPI struct {
	cluster.Cluster
	err error
}

func (a silentAPI) Get(context.Context, cluster.Object) (bool, error) { return false, a.err }
func (a silentAPI) Ready(context.Context) error                       { return a.err }

// TestRevertWithoutAPI: without the API, which the change may have broken, the error has the way back by hand, but only if that does no
// harm and is complete.
func TestRevertWithoutAPI(t *testing.T) {
	const added, rollback = "/etc/kubernetes/added.yaml", "`slipway upgrade rollback`"
	set := func(flag string) func(*testing.T, *phasetest.Stage) {
		return func(t *testing.T, s *phasetest.Stage) {
			t.Helper()
			s.EditPod(t, manifests.APIServerName, "    - --secure-port=6443\n", "    - --secure-port=6443\n    - --"+flag+"\n")
		}
	}
	nothing := func(*testing.T, *phasetest.Stage) {}
	for name, test := range map[string]struct {
		files         []string
		change, since func(*testing.T, *phasetest.Stage)
		byHand        bool
	}{
		"safe":        {[]string{apiServer, added}, set("profiling=false"), nothing, true},
		"upgraded":    {[]string{apiServer}, set("profiling=false"), func(t *testing.T, s *phasetest.Stage) { s.EditPod(t, manifests.APIServerName, "v1.37.2", "v1.38.0") }, false},
		"rolled back": {[]string{apiServer}, set("profiling=false"), func(t *testing.T, s *phasetest.Stage) { s.EditPod(t, manifests.APIServerName, "v1.37.2", "v1.36.4") }, false},
		"encrypts":    {[]string{apiServer}, set(manifests.EncryptionFlag + "=/etc/keys.yaml"), nothing, false},
		"no copy":     {[]string{apiServer, adminConf}, set("profiling=false"), nothing, false},
		"edited":      {[]string{apiServer}, set("profiling=false"), set("v=4"), false},
		"done":        {[]string{apiServer}, nothing, nothing, false},
		"no Pod":      {[]string{apiServer, added}, set("profiling=false"), func(t *testing.T, s *phasetest.Stage) { phasetest.Fatal(t, s.Host.Remove(apiServer)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			last := begin(t, s, test.files...)
			test.change(t, s)
			s.Put(t, added, "a: b\n")
			phasetest.Fatal(t, last.MarkCompleted(s.Env))
			test.since(t, s)
			s.Cluster = silentAPI{s.API, errors.New("no answer")}
			err := takeBack(t, s)
			fact.Error(t, err, "no answer")
			remedy := fault.Remedy(err)
			fact.In(t, remedy, "`slipway diagnose`")
			if test.byHand {
				fact.In(t, remedy, last.Dir()+"/etc-kubernetes-manifests-kube-apiserver.yaml to "+apiServer, "remove "+added)
			} else {
				fact.NotIn(t, remedy, last.Dir(), added)
			}
			if got := strings.Contains(remedy, rollback); got != (name == "upgraded") {
				t.Errorf("names the rollback: %t", got)
			}
		})
	}
}

// TestRevertKeepsEdits: nothing is taken back if files or ConfigMaps have changed since, except for a renewed certificate, which stays.
func TestRevertKeepsEdits(t *testing.T) {
	s := live(t)
	phasetest.Fatal(t, run(t, s))
	renewed := s.Get(t, serverCert) + "\n"
	s.Put(t, serverCert, renewed)
	s.Put(t, settings, s.Get(t, settings)+"podPidsLimit: 77\n")
	edit(t, s, "kubelet-config", "kubelet", "podPidsLimit: 9\n")
	were, had := files(t, s), configuration(t, s)
	for _, ignored := range [][]string{nil, {"all"}} {
		fact.Error(t, takeBack(t, s, ignored...), fault.ChangedSince, settings, "kube-system/kubelet-config")
	}
	if diff := cmp.Diff(were, files(t, s)) + cmp.Diff(had, configuration(t, s)); diff != "" {
		t.Errorf("files and configuration:\n%s", diff)
	}
	phasetest.Fatal(t, takeBack(t, s, fault.ChangedSince))
	fact.NotIn(t, s.Get(t, settings)+s.Get(t, apiServer)+stored(t, s, "kubelet-config", "kubelet"), "podPidsLimit", "maxPods: 55", "profiling")
	if s.Get(t, serverCert) != renewed {
		t.Error("the renewed certificate is not as it was")
	}
}

// TestRevertKeepsEditOnTrial: an edit that somebody has made before the change was confirmed isn't the change's.
func TestRevertKeepsEditOnTrial(t *testing.T) {
	s := live(t)
	r := change(t, s)
	r.Try, r.Wait = time.Minute, func(wait func() error) error {
		s.Append(t, settings, "podPidsLimit: 77\n")
		_, err := Answer(s.Env, trial.Confirmed, false)
		phasetest.Fatal(t, err)
		return wait()
	}
	phasetest.Fatal(t, step.Run(t.Context(), s.Env, r.Phases(), step.Options{}))
	fact.Error(t, takeBack(t, s), fault.ChangedSince, settings)
	fact.In(t, s.Get(t, settings), "podPidsLimit: 77", "maxPods: 55")
}

// TestRevertKeepsLaterCertificate: a certificate about to expire doesn't come back, but its names do.
func TestRevertKeepsLaterCertificate(t *testing.T) {
	const former = "old.example.org"
	for name, removed := range map[string][]string{"all names are left": nil, "a name is gone": {former}} {
		t.Run(name, func(t *testing.T) {
			s := live(t)
			first := changeTo(t, s, ofCluster+"apiServer: {certSANs: ["+former+"]}\n")
			phasetest.Fatal(t, step.Run(t.Context(), s.Env, first.Phases(), step.Options{}))
			short := s.PKI()
			short.Config = short.Config.With(func(n *config.Node) { n.Cluster.CertificateValidityPeriod = &metav1.Duration{Duration: time.Second} })
			phasetest.Fatal(t, pki.Renewal{Store: short, Name: certs.APIServer, KeepKey: true}.Renew(certs.APIServer))
			were := files(t, s)
			second := change(t, s)
			second.Removed = removed
			phasetest.Fatal(t, step.Run(t.Context(), s.Env, second.Phases(), step.Options{}))
			issued := s.Get(t, serverCert)
			phasetest.Fatal(t, takeBack(t, s))
			cert := s.Cert(t, serverCert)
			stays := s.Get(t, serverCert) == issued
			if err := cert.VerifyHostname(former); err != nil || cert.NotAfter.Before(time.Now().Add(time.Hour)) || stays != (removed == nil) {
				t.Errorf("the certificate ends at %s, and stays: %t; %v", cert.NotAfter, stays, err)
			}
			were[serverCert] = s.Get(t, serverCert)
			if diff := cmp.Diff(were, files(t, s)); diff != "" {
				t.Errorf("files:\n%s", diff)
			}
		})
	}
}

// TestRevertKeepsVersions: a node that has stored nothing doesn't go back to before an upgrade, whatever is ignored.
func TestRevertKeepsVersions(t *testing.T) {
	s := live(t)
	changeElsewhere(t, s)
	phasetest.Fatal(t, toStored(t, s))
	made := s.Get(t, apiServer)
	s.Put(t, apiServer, strings.ReplaceAll(made, "v1.37.2", "v1.38.0"))
	were := files(t, s)
	fact.Error(t, takeBack(t, s, "all", fault.ChangedSince), fault.ChangedSince, apiServer, "v1.37.2", "v1.38.0", "`slipway upgrade rollback`")
	if diff := cmp.Diff(were, files(t, s)); diff != "" {
		t.Errorf("files:\n%s", diff)
	}
	s.Put(t, apiServer, strings.ReplaceAll(made, "v1.37.2", "v1.37.2@sha256:"+strings.Repeat("0", 64)))
	phasetest.Fatal(t, takeBack(t, s, fault.ChangedSince))
	fact.NotIn(t, s.Get(t, apiServer), "--profiling=false")
}

func TestSameVersion(t *testing.T) {
	for _, test := range []struct {
		a, b string
		same bool
	}{
		{"registry.k8s.io/etcd:3.6.4-0", "example.org:5000/etcd:3.6.4-0", true},
		{"registry.k8s.io/etcd:3.6.4-0", "registry.k8s.io/etcd:3.5.21-0", false},
		{"registry.k8s.io/kube-apiserver:v1.37.2", "example.org/kube-apiserver:v1.37.2-fips", true},
		{"registry.k8s.io/kube-apiserver:v1.37.2", "registry.k8s.io/kube-apiserver:v1.37.1", false},
		{"example.org/kube-apiserver:ours", "example.org/kube-apiserver:ours", true},
		{"example.org/kube-apiserver:ours", "example.org/kube-apiserver:v1.37.2", false},
	} {
		if got := sameVersion(test.a, test.b); got != test.same {
			t.Errorf("%s and %s: %t", test.a, test.b, got)
		}
	}
}
