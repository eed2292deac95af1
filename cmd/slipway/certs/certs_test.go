// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/pki"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestMissing: a control plane, or a host described by a file, needs its certificates. A worker with a copy of one needs no others. A
// new CA would not be the cluster's.
func TestMissing(t *testing.T) {
	for name, row := range map[string]struct {
		controlPlane, described bool
		want                    int
	}{
		"a worker":        {want: 0},
		"a control plane": {controlPlane: true, want: 2},
		"a file":          {described: true, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			real := linux.NewAt(root)
			defer real.Close()
			n := fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument)
			s := pki.Store{Config: n, Host: real, UI: ui.NewLines(io.Discard, io.Discard)}
			ca, _ := certs.Find(s.Config, certs.CA)
			if err := s.Ensure(ca, nil); err != nil {
				t.Fatal(err)
			}
			if row.controlPlane {
				fixture.Put(t, root, thisnode.APIServerManifest, "")
			}
			info, err := expirations(s, row.described)
			if err != nil {
				t.Fatal(err)
			}
			err = info.expiring(0)
			if code := cli.CodeOf(err); code != row.want {
				t.Fatalf("exit code %d, want %d: %v", code, row.want, err)
			}
			if err != nil {
				fact.In(t, err.Error(), ": etcd-ca, front-proxy-ca;", "backup", "`slipway init phase certs NAME`", "--config")
				fact.NotIn(t, err.Error(), "admin.conf", "certs all")
			}
		})
	}
}

// TestUnreadable: a file that can't be read doesn't hide the others.
func TestUnreadable(t *testing.T) {
	root := t.TempDir()
	real := linux.NewAt(root)
	defer real.Close()
	s := pki.Store{Config: fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument), Host: real, UI: ui.NewLines(io.Discard, io.Discard)}
	ca, _ := certs.Find(s.Config, certs.CA)
	if err := s.Ensure(ca, nil); err != nil {
		t.Fatal(err)
	}
	fixture.Put(t, root, "/etc/kubernetes/admin.conf", "token: [SECRET")
	info, err := expirations(s, true)
	fact.Error(t, err, "/etc/kubernetes/admin.conf", "`slipway init phase kubeconfig admin`")
	var table strings.Builder
	if err := info.table(&table); err != nil {
		t.Fatal(err)
	}
	fact.In(t, table.String(), "\n!UNREADABLE! admin.conf ", "\n!MISSING! apiserver ", "\nca  ")
	fact.NotIn(t, table.String()+err.Error(), "SECRET")
}

// TestWithoutCluster: if nobody says where the certificates are, the API server's static Pod does, unless the command line does.
func TestWithoutCluster(t *testing.T) {
	const document = `---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
certificatesDir: /opt/pki
etcd: {external: {endpoints: ["https://192.0.2.31:2379"], caFile: /opt/etcd/ca.crt, certFile: /opt/etcd/client.crt, keyFile: /opt/etcd/client.key}}
`
	pod, err := yaml.Marshal(manifests.APIServer(fixture.Node(t, fixture.InitDocument+document), manifests.HostView{}))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	path := filepath.Join(root, thisnode.APIServerManifest)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pod, 0o600); err != nil {
		t.Fatal(err)
	}
	real := linux.NewAt(root)
	defer real.Close()
	node, err := fromFiles(real)
	if err != nil {
		t.Fatal(err)
	}
	if node.Paths.PKI != "/opt/pki" || node.Cluster.Etcd.External == nil || node.Cluster.Etcd.External.KeyFile != "/opt/etcd/client.key" {
		t.Errorf("certificates in %s, etcd %+v", node.Paths.PKI, node.Cluster.Etcd.External)
	}
	o, cmd := &options{}, &cobra.Command{}
	config.Bind(cmd.Flags(), "certs renew", &o.CertsFlags)
	if err := cmd.Flags().Set("cert-dir", "/srv/pki"); err != nil {
		t.Fatal(err)
	}
	if node, err = o.place(cmd, node); err != nil || node.Paths.PKI != "/srv/pki" {
		t.Errorf("certificates in %v, %v", node, err)
	}
}
