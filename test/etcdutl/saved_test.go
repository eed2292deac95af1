// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcdutl

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	client "go.etcd.io/etcd/client/v3/snapshot"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/slipway-k8s/slipway/internal/etcd"
)

// TestSaved: etcdutl reads and restores a snapshot that `slipway etcd snapshot save` has streamed from a running etcd, and Slipway
// verifies and restores one of `etcdctl snapshot save`. Both programs report the same of both.
func TestSaved(t *testing.T) {
	clientURL, peer, trust := startEtcd(t)
	tls, err := trust.ClientConfig()
	must(t, err)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{clientURL}, TLS: tls, Logger: zap.NewNop()})
	must(t, err)
	defer c.Close()
	for i := range 30 {
		_, err := c.Put(t.Context(), fmt.Sprintf("/registry/configmaps/%d", i%20), "value")
		must(t, err)
	}
	_, err = c.Delete(t.Context(), "/registry/configmaps/0")
	must(t, err)

	ours, theirs := filepath.Join(t.TempDir(), "ours.db"), filepath.Join(t.TempDir(), "theirs.db")
	f, err := os.Create(ours)
	must(t, err)
	defer f.Close()
	member := etcd.New(etcd.Options{
		Endpoints: func(context.Context) ([]string, error) { return []string{clientURL}, nil },
		CA:        trust.TrustedCAFile, Cert: trust.CertFile, Key: trust.KeyFile, ReadFile: os.ReadFile, Timeout: time.Minute,
	})
	_, err = member.Snapshot(t.Context(), peer, f)
	must(t, err)
	_, err = client.SaveWithVersion(t.Context(), zap.NewNop(), clientv3.Config{Endpoints: []string{clientURL}, TLS: tls}, theirs)
	must(t, err)

	for _, path := range []string{ours, theirs} {
		want, err := snapshot.NewV3(zap.NewNop()).Status(path)
		must(t, err)
		in, err := os.Open(path)
		must(t, err)
		defer in.Close()
		got, err := etcd.VerifySnapshot(in)
		if err != nil || got.Revision != want.Revision || got.Keys != want.TotalKey || got.Keys != 19 || got.Version != want.Version {
			t.Errorf("%s: %+v, %v; etcdutl %+v", path, got, err, want)
		}
		must(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
			SnapshotPath: path, Name: name, OutputDataDir: t.TempDir(), PeerURLs: []string{peerURL}, InitialCluster: name + "=" + peerURL,
			InitialClusterToken: "t",
		}))
		_, err = etcd.Restore(t.Context(), in, t.TempDir(), name, peerURL, 0, time.Time{})
		must(t, err)
	}
}

// startEtcd starts an etcd on a loopback address of its own.
func startEtcd(t *testing.T) (clientURL, peer string, trust transport.TLSInfo) {
	t.Helper()
	ip := net.IPv4(127, 77, byte(os.Getpid()>>8), byte(os.Getpid()))
	trust = certificate(t, ip)
	cfg := embed.NewConfig()
	cfg.Name, cfg.Dir, cfg.LogLevel, cfg.LogOutputs = name, t.TempDir(), "panic", []string{"stderr"}
	cfg.ClientTLSInfo = trust
	for to, at := range map[*[]url.URL]url.URL{
		&cfg.ListenClientUrls: {Scheme: "https", Host: ip.String() + ":2379"}, &cfg.AdvertiseClientUrls: {Scheme: "https", Host: ip.String() + ":2379"},
		&cfg.ListenPeerUrls: {Scheme: "http", Host: ip.String() + ":2380"}, &cfg.AdvertisePeerUrls: {Scheme: "http", Host: ip.String() + ":2380"},
	} {
		*to = []url.URL{at}
	}
	cfg.InitialCluster = cfg.InitialClusterFromName(name)
	e, err := embed.StartEtcd(cfg)
	must(t, err)
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case err := <-e.Err():
		t.Fatal(err)
	}
	return cfg.AdvertiseClientUrls[0].String(), cfg.AdvertisePeerUrls[0].String(), trust
}

// certificate writes a self-signed pair, for either side.
func certificate(t *testing.T, ip net.IP) transport.TLSInfo {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{ip}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must(t, err)
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	dir := t.TempDir()
	info := transport.TLSInfo{CertFile: filepath.Join(dir, "crt"), KeyFile: filepath.Join(dir, "key"), TrustedCAFile: filepath.Join(dir, "crt"), ClientCertAuth: true}
	must(t, os.WriteFile(info.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	must(t, os.WriteFile(info.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}), 0o600))
	return info
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
