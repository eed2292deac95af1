// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

func etcdRows() []row {
	const url = "http://192.0.2.20:2379/version"
	says := func(answer string) func(scene) {
		return func(s scene) {
			s.external()
			s.Has.Answers[url] = answer
		}
	}
	return []row{
		{"ExternalEtcdVersion", "oldest", says(`{"etcdserver":"3.5.24","etcdcluster":"3.5.0"}`), nil},
		{"ExternalEtcdVersion", "too old", says(`{"etcdserver":"3.5.23"}`),
			[]string{"[ERROR ExternalEtcdVersion] | http://192.0.2.20:2379/version | etcd 3.5.23 | 3.5.24-0"}},
		{"ExternalEtcdVersion", "something else", says("hello"),
			[]string{"[ERROR ExternalEtcdVersion] | http://192.0.2.20:2379/version | invalid character 'h' | etcd.external"}},
		{"ExternalEtcdVersion", "no version", says("{}"),
			[]string{"[ERROR ExternalEtcdVersion] | http://192.0.2.20:2379/version | \"\" | etcd.external"}},
		{"ExternalEtcdVersion", "every member is asked", func(s scene) {
			says(`{"etcdserver":"3.6.8"}`)(s)
			e := s.node.Cluster.Etcd.External
			e.Endpoints = append(e.Endpoints, "http://192.0.2.21:2379", "http://192.0.2.22:2379")
		}, []string{
			"[ERROR ExternalEtcdVersion] | \"http://192.0.2.21:2379/version\" | connection refused | etcd.external",
			"[ERROR ExternalEtcdVersion] | \"http://192.0.2.22:2379/version\" | connection refused | etcd.external",
		}},
		{"ExternalEtcdVersion", "dry run", func(s scene) {
			s.external()
			s.Fail["Fetch"] = host.ErrNotInPlan
		}, []string{"[UNASKED ExternalEtcdVersion] | etcd | http://192.0.2.20:2379/version"}},
		{"ExternalEtcdVersion", "HTTP endpoints of their own", func(s scene) {
			says(`{"etcdserver":"3.6.8"}`)(s)
			e := s.node.Cluster.Etcd.External
			e.Endpoints, e.HTTPEndpoints = []string{"https://192.0.2.20:12379"}, e.Endpoints
		}, nil},
		{"ExternalEtcdVersion", "CA missing", func(s scene) {
			says(`{"etcdserver":"3.6.8"}`)(s)
			s.node.Cluster.Etcd.External.CAFile = "/etc/etcd/ca.crt"
		}, []string{"[ERROR ExternalEtcdVersion] | etcd.external.caFile | etc/etcd/ca.crt"}},

		{"ExternalEtcdClientCertificates", "none named", func(s scene) { s.external() }, nil},
		{"ExternalEtcdClientCertificates", "all missing", withFiles("", "", ""), []string{
			"[ERROR ExternalEtcdClientCertificates] | etcd.external.caFile | etc/etcd/ca.crt",
			"[ERROR ExternalEtcdClientCertificates] | etcd.external.certFile | etc/etcd/client.crt",
			"[ERROR ExternalEtcdClientCertificates] | etcd.external.keyFile | etc/etcd/client.key",
		}},
		{"ExternalEtcdClientCertificates", "empty", func(s scene) {
			withFiles("ca", "crt", "")(s)
			s.put("/etc/etcd/client.key", "")
		}, []string{"[ERROR ExternalEtcdClientCertificates] | etcd.external.keyFile | /etc/etcd/client.key | empty"}},
		{"EtcdImageTag", "etcd 3.5", func(s scene) { s.node.Cluster.Etcd.Local.ImageTag = "3.5.21-0" },
			[]string{"[ERROR EtcdImageTag] | etcd.local.imageTag | 3.5.21-0 | 3.6"}},
		{"ExternalEtcdClientCertificates", "a pair", func(s scene) {
			crt, key := pair()
			withFiles("ca", crt, key)(s)
		}, nil},
		{"ExternalEtcdClientCertificates", "another's key", func(s scene) {
			crt, _ := pair()
			_, key := pair()
			withFiles("ca", crt, key)(s)
		}, []string{"[ERROR ExternalEtcdClientCertificates] | /etc/etcd/client.crt | /etc/etcd/client.key | private key"}},
	}
}

// withFiles names all three files and makes the files with content.
func withFiles(ca, crt, key string) func(scene) {
	return func(s scene) {
		s.external()
		e := s.node.Cluster.Etcd.External
		e.CAFile, e.CertFile, e.KeyFile = "/etc/etcd/ca.crt", "/etc/etcd/client.crt", "/etc/etcd/client.key"
		for _, f := range [][2]string{{e.CAFile, ca}, {e.CertFile, crt}, {e.KeyFile, key}} {
			if f[1] != "" {
				s.put(f[0], f[1])
			}
		}
	}
}

// pair makes a certificate and its key, both in PEM.
func pair() (crt, key string) {
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		panic(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// TestEtcdImageTag: etcd 3.5 doesn't start with flags of 3.6. Other tags, and an external etcd's, are left to the operator.
func TestEtcdImageTag(t *testing.T) {
	for tag, refused := range map[string]bool{"3.5.21-0": true, "v3.5.32": true, "3.6.8-0": false, "3.7.0-0": false, "latest": false, "": false} {
		n := controlPlaneNode()
		n.Cluster.Etcd.Local = &config.LocalEtcd{ImageMeta: config.ImageMeta{ImageTag: tag}}
		found := EtcdImageTag(n, "").Run(t.Context(), nil)
		if (len(found) > 0) != refused {
			t.Errorf("%s: %v", tag, found)
		}
		n.Cluster.Etcd = config.Etcd{External: &config.ExternalEtcd{}}
		if found := EtcdImageTag(n, "").Run(t.Context(), nil); len(found) > 0 {
			t.Errorf("external: %v", found)
		}
	}
	has := func(list []Check) bool {
		return slices.ContainsFunc(list, func(c Check) bool { return c.Name == "EtcdImageTag" })
	}
	if !has(Init(controlPlaneNode(), nil)) || !has(JoinControlPlane(joiningControlPlane(), nil)) {
		t.Error("not among the checks of init and join")
	}
}
