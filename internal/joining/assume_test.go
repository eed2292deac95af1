// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/plan"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestAssumeSharesWhatIsHere: a plan for a control plane has all of control planes' shared files, including this host's, and
// writes nothing. If a run couldn't use a file, a plan can't either.
func TestAssumeSharesWhatIsHere(t *testing.T) {
	s := newStage(t)
	key := strings.Repeat("cd", 32)
	assume := func() (*config.Node, error) {
		self, _, err := config.LoadJoin(nil, config.JoinFlags{
			Given: []string{"token", "discovery-token-unsafe-skip-ca-verification", "node-name", "cri-socket", "control-plane", "certificate-key",
				"apiserver-advertise-address"},
			Endpoint: "192.0.2.1:6443", Token: fixture.Token, SkipCAVerification: true, NodeName: "cp-2", CRISocket: "unix:///run/containerd/containerd.sock",
			ControlPlane: true, CertificateKey: key, APIServerAdvertiseAddress: "192.0.2.12",
		}, config.Options{})
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := (&Discovery{Host: s.host, UI: s.ui}).Assume(t.Context(), self, plan.NewOverlay(s.host, func(host.Action) {}))
		return n, err
	}
	ca, err := certs.EncodeKey(s.ca.Key)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, "/etc/kubernetes/pki/etcd/ca.crt", string(certs.EncodeCerts(s.ca.Cert)))
	s.put(t, "/etc/kubernetes/pki/etcd/ca.key", string(ca))
	n, err := assume()
	if err != nil {
		t.Fatal(err)
	}
	files, err := manifests.DecryptCerts(n.Join.Shared, config.NewSecret(key))
	if err != nil || len(files) != len(manifests.SharedFiles(n)) || string(files["etcd-ca.key"]) != string(ca) {
		t.Errorf("%d files, error %v", len(files), err)
	}
	for name, data := range files {
		if len(data) == 0 {
			t.Errorf("%s is empty", name)
		}
	}
	if _, err := os.Stat(filepath.Join(s.host.Root, "/etc/kubernetes/pki/ca.crt")); err == nil {
		t.Error("ca.crt was written")
	}
	s.put(t, "/etc/kubernetes/pki/ca.crt", "x")
	const want = "/etc/kubernetes/pki/ca.crt"
	_, err = assume()
	fact.In(t, message(err), "plan", want)
}
