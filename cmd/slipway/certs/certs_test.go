// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/test/fixture"
)

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
