// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package joining

import (
	"bytes"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/leaks"
	teststage "github.com/slipway-k8s/slipway/test/stage"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// stage is a host in a directory that will join a cluster, and the contents of the cluster's API.
type stage struct {
	host *teststage.Host
	ca   fixture.Pair
	api  *cluster.Plan
	ui   ui.UI
	said bytes.Buffer

	connect func(kubeconfig []byte) cluster.Cluster
}

func newStage(t *testing.T, objs ...cluster.Object) *stage {
	t.Helper()
	s := &stage{host: teststage.New(t), ca: fixture.Signed(t, fixture.Pair{}, "kubernetes", time.Now().Add(time.Hour))}
	s.ui, s.api = ui.NewLines(&s.said, &s.said), fixture.API(t, objs...)
	s.connect = func([]byte) cluster.Cluster { return s.api }
	s.put(t, "/discovery.conf", fixture.Kubeconfig(s.ca, ""))
	return s
}

func (s *stage) put(t *testing.T, path, text string) {
	t.Helper()
	fixture.Put(t, s.host.Root, path, text)
}

// bootstrapped does the work of worker-1's kubelet once its certificate is signed.
func (s *stage) bootstrapped(t *testing.T, ca fixture.Pair, until time.Time) {
	t.Helper()
	fixture.BootstrapKubelet(t, s.host.Root, ca, "worker-1", until)
}

// join loads the node from a command line: by token, and from an address where nobody answers, unless change says otherwise.
func (s *stage) join(t *testing.T, change func(*config.JoinFlags)) (*config.Node, error) {
	t.Helper()
	flags := config.JoinFlags{Given: []string{"token", "node-name", "cri-socket", "discovery-token-ca-cert-hash"}, Endpoint: "127.0.0.1:1",
		Token: fixture.Token, CACertHashes: []string{certs.PublicKeyPin(s.ca.Cert)}, NodeName: "worker-1", CRISocket: "unix:///run/containerd/containerd.sock"}
	if change != nil {
		change(&flags)
	}
	opts := config.Options{Facts: config.HostFacts{Hostname: "worker-1"}}
	self, _, err := config.LoadJoin(nil, flags, opts)
	if err != nil {
		t.Fatal(err)
	}
	self.Timeouts.Discovery.Duration = 50 * time.Millisecond
	d := &Discovery{Host: s.host, UI: s.ui, Options: opts, Connect: s.connect}
	n, _, err := d.Node(t.Context(), self)
	return n, err
}

// byFile makes a command line use the discovery file.
func byFile(f *config.JoinFlags) {
	*f = fixture.DiscoveryFlags(f.NodeName)
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
