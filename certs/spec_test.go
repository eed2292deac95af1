// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestTable checks the assumptions of the table's users.
func TestTable(t *testing.T) {
	names := map[string]bool{}
	for _, row := range Table() {
		if names[row.Name] || row.Summary == "" || (row.File == "") == (row.Kubeconfig == "") || row.CA != "" && !names[row.CA] {
			t.Errorf("%+v", row)
		}
		names[row.Name] = true
		if row.IsCA() && (row.Renewable() || row.OnJoin() || row.Kubeconfig != "") {
			t.Errorf("%s is a CA, but would be replaced", row.Name)
		}
	}
	var onJoin, renewable []string
	for _, row := range Table() {
		if row.Renewable() {
			renewable = append(renewable, row.Name)
		}
		if row.OnJoin() {
			onJoin = append(onJoin, row.Phase())
		}
	}
	if diff := cmp.Diff([]string{
		"certs apiserver", "certs apiserver-kubelet-client", "certs front-proxy-client", "certs etcd-server", "certs etcd-peer",
		"certs etcd-healthcheck-client", "certs apiserver-etcd-client",
		"kubeconfig admin", "kubeconfig controller-manager", "kubeconfig scheduler",
	}, onJoin); diff != "" {
		t.Errorf("a joining control plane (-want +got):\n%s", diff)
	}
	if len(renewable) != len(onJoin)+1 || !slices.Contains(renewable, "super-admin.conf") || slices.Contains(renewable, Kubelet) {
		t.Errorf("renewable: %v", renewable)
	}
}

// TestExternalEtcd: etcd's operator has the certificates.
func TestExternalEtcd(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	n.Cluster.Etcd.External = &config.ExternalEtcd{}
	for _, row := range Specs(n) {
		if strings.Contains(row.Name, "etcd") {
			t.Errorf("the table has %s", row.Name)
		}
	}
	if _, found := Find(n, APIServerEtcdClient); found {
		t.Error("found the client certificate for etcd")
	}
}

func TestSpecOrder(t *testing.T) {
	n := fixture.DefaultNode("cp-1", "192.168.99.11")
	var got []string
	for _, spec := range Specs(n) {
		if !spec.IsCA() && !slices.Contains(got, spec.CA) {
			t.Errorf("%s comes before its CA %s", spec.Name, spec.CA)
		}
		got = append(got, spec.Name)
	}
	want := strings.Fields("ca apiserver apiserver-kubelet-client front-proxy-ca front-proxy-client " +
		"etcd-ca etcd-server etcd-peer etcd-healthcheck-client apiserver-etcd-client " +
		"admin.conf super-admin.conf kubelet.conf controller-manager.conf scheduler.conf")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestSANs checks observed behaviour of kubeadm that the reference doesn't cover.
func TestSANs(t *testing.T) {
	cluster := "kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.cluster.local"
	tests := []struct {
		name  string
		spec  string
		setup func(*config.Node)
		names string
		ips   string
	}{{
		name: "IPv6 only", spec: "apiserver",
		setup: func(n *config.Node) {
			*n = *fixture.DefaultNode("cp-1", "fd00::11")
			n.Cluster.Networking = config.Networking{ServiceSubnet: "fd00:10:96::/112", DNSDomain: "my.dom"}
			n.Cluster.ControlPlaneEndpoint = "[fd00::99]:7443"
		},
		names: "cp-1 kubernetes kubernetes.default kubernetes.default.svc kubernetes.default.svc.my.dom",
		ips:   "fd00:10:96::1 fd00::11 fd00::99",
	}, {
		name: "etcd, IPv6 only", spec: "etcd-server",
		setup: func(n *config.Node) { *n = *fixture.DefaultNode("cp-1", "fd00::11") },
		names: "cp-1 localhost", ips: "fd00::11 127.0.0.1 ::1",
	}, {
		name: "dual stack with IPv6 first", spec: "apiserver",
		setup: func(n *config.Node) { n.Cluster.Networking.ServiceSubnet = "fd00:10:96::/112,10.96.0.0/16" },
		names: "cp-1 " + cluster, ips: "fd00:10:96::1 192.168.99.11",
	}, {
		name: "endpoint is a name without a port", spec: "apiserver",
		setup: func(n *config.Node) { n.Cluster.ControlPlaneEndpoint = "api.lab.example" },
		names: "api.lab.example cp-1 " + cluster, ips: "10.96.0.1 192.168.99.11",
	}, {
		name: "endpoint is an address", spec: "apiserver",
		setup: func(n *config.Node) { n.Cluster.ControlPlaneEndpoint = "10.1.1.1:8443" },
		names: "cp-1 " + cluster, ips: "10.96.0.1 192.168.99.11 10.1.1.1",
	}, {
		name: "extra names and addresses, some twice", spec: "apiserver",
		setup: func(n *config.Node) {
			n.Cluster.ControlPlaneEndpoint = "api.lab.example:6443"
			n.Cluster.APIServer.CertSANs = []string{
				"zeta.example", "10.9.9.9", "api.lab.example", "Alpha.Example", "fd00::7",
				"10.9.9.9", "::ffff:10.9.9.9", "*.wild.example", "192.168.99.11",
			}
		},
		names: "*.wild.example alpha.example api.lab.example cp-1 " + cluster + " zeta.example",
		ips:   "10.96.0.1 192.168.99.11 10.9.9.9 fd00::7",
	}, {
		name: "extra names of etcd's server", spec: "etcd-server",
		setup: func(n *config.Node) {
			n.Cluster.Etcd.Local = &config.LocalEtcd{
				ServerCertSANs: []string{"etcd.example", "10.2.2.2", "localhost"},
				PeerCertSANs:   []string{"peer.example", "::1"},
			}
		},
		names: "cp-1 etcd.example localhost", ips: "192.168.99.11 127.0.0.1 ::1 10.2.2.2",
	}, {
		name: "extra names of etcd's peer", spec: "etcd-peer",
		setup: func(n *config.Node) {
			n.Cluster.Etcd.Local = &config.LocalEtcd{
				ServerCertSANs: []string{"etcd.example"}, PeerCertSANs: []string{"peer.example", "::1"},
			}
		},
		names: "cp-1 localhost peer.example", ips: "192.168.99.11 127.0.0.1 ::1",
	}, {
		name: "a client has none", spec: "front-proxy-client",
		setup: func(*config.Node) {},
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := fixture.DefaultNode("cp-1", "192.168.99.11")
			tt.setup(n)
			spec := find(t, n, tt.spec)
			var ips []string
			for _, ip := range spec.IPs {
				ips = append(ips, ip.String())
			}
			if diff := cmp.Diff(tt.names, strings.Join(spec.DNSNames, " ")); diff != "" {
				t.Errorf("names (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.ips, strings.Join(ips, " ")); diff != "" {
				t.Errorf("addresses (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEtcdSubject(t *testing.T) {
	n := fixture.DefaultNode("cp-7", "192.168.99.11")
	for _, name := range []string{"etcd-server", "etcd-peer"} {
		if got := find(t, n, name).CommonName; got != "cp-7" {
			t.Errorf("the common name of %s is %q, not the node's name", name, got)
		}
	}
}
