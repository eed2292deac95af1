// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/x509"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/stage"
)

const (
	adminConf = "/etc/kubernetes/admin.conf"
)

// controlPlane has a control plane's certificates and kubeconfig files in a temporary directory.
type controlPlane struct {
	Store
	host *stage.Host
	root string
	said bytes.Buffer
}

func newControlPlane(t *testing.T) *controlPlane {
	t.Helper()
	n := fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument)
	c := &controlPlane{root: stage.Dir(t)}
	c.host = stage.At(c.root)
	c.Store = Store{Host: c.host, Config: n, UI: ui.NewLines(&c.said, &c.said)}
	for _, row := range certs.Specs(n) {
		if err := c.Ensure(row, nil); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *controlPlane) get(t *testing.T, path string) []byte {
	t.Helper()
	return []byte(fixture.Get(t, c.root, path))
}

func (c *controlPlane) remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(filepath.Join(c.root, path)); err != nil {
		t.Fatal(err)
	}
}

func (c *controlPlane) apiserver(t *testing.T) *x509.Certificate {
	t.Helper()
	cert, err := certs.FirstCert(c.get(t, pkiDir+"apiserver.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func TestKeepsServerOfKubeconfig(t *testing.T) {
	c := newControlPlane(t)
	file := bytes.Replace(c.get(t, adminConf), []byte("192.0.2.11:6443"), []byte("lb.example:443"), 1)
	if err := os.WriteFile(filepath.Join(c.root, adminConf), file, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (Renewal{Store: c.Store, Name: certs.Admin}).Renew(certs.Admin); err != nil {
		t.Fatal(err)
	}
	renewed := c.get(t, adminConf)
	if url, _, err := kubeconfig.Server(renewed); err != nil || url != "https://lb.example:443" || bytes.Equal(renewed, file) {
		t.Errorf("the server is %s, %v", url, err)
	}
}

// TestAsItWas renews without knowing the configuration.
func TestAsItWas(t *testing.T) {
	c := newControlPlane(t)
	old := c.apiserver(t)
	unknown := *c.Config
	unknown.Name, unknown.Cluster.EncryptionAlgorithm = "elsewhere", config.RSA2048
	c.Config = &unknown
	if err := (Renewal{Store: c.Store, Name: certs.APIServer, FromOldCertificates: true}).Renew(certs.APIServer); err != nil {
		t.Fatal(err)
	}
	got := c.apiserver(t)
	if strings.Join(got.DNSNames, " ") != strings.Join(old.DNSNames, " ") || got.PublicKeyAlgorithm != x509.ECDSA || got.Equal(old) {
		t.Errorf("names %v, key %s", got.DNSNames, got.PublicKeyAlgorithm)
	}
}

// TestLifetimeAsItWas: without the configuration, a certificate is valid for as long as the one before, if that's known.
func TestLifetimeAsItWas(t *testing.T) {
	const day = 24 * time.Hour
	for _, tt := range []struct {
		before, later, want time.Duration
	}{
		{30 * day, 0, 30 * day},
		{30 * day, day, 30 * day},
		{800 * day, day, 800 * day},
		{800 * day, 0, 365 * day}, // it begins when its CA does
	} {
		c := newControlPlane(t)
		authority, err := certs.FirstCert(c.get(t, pkiDir+"ca.crt"))
		if err != nil {
			t.Fatal(err)
		}
		c.host.Has.Time = authority.NotBefore.Add(certs.Backdate + tt.later)
		c.Config.Cluster.CertificateValidityPeriod.Duration = tt.before
		if err := (Renewal{Store: c.Store}).Renew(certs.APIServer); err != nil {
			t.Fatal(err)
		}
		c.Config.Cluster.CertificateValidityPeriod.Duration = 365 * day
		r, old := Renewal{Store: c.Store, FromOldCertificates: true, Within: tt.before + day}, c.apiserver(t)
		if err := r.Renew(certs.APIServer); err != nil || !c.apiserver(t).Equal(old) {
			t.Fatalf("%+v: renewed at once, %v", tt, err)
		}
		c.host.Has.Time, r.Within = c.host.Has.Time.Add(day), 0
		if err := r.Renew(certs.APIServer); err != nil {
			t.Fatal(err)
		}
		got := c.apiserver(t)
		if d := got.NotAfter.Sub(c.host.Has.Time); d != tt.want {
			t.Errorf("%+v: %s", tt, d)
		}
	}
}

// TestKeepKey: a certificate with another algorithm gets another key.
func TestKeepKey(t *testing.T) {
	for name, keeps := range map[config.EncryptionAlgorithm]bool{config.ECDSAP256: true, config.RSA2048: false} {
		t.Run(string(name), func(t *testing.T) {
			c := newControlPlane(t)
			cert, key := c.apiserver(t), c.get(t, pkiDir+"apiserver.key")
			other := *c.Config
			other.Cluster.EncryptionAlgorithm = name
			c.Config = &other
			if err := (Renewal{Store: c.Store, KeepKey: true}).Renew(certs.APIServer); err != nil {
				t.Fatal(err)
			}
			if c.apiserver(t).Equal(cert) {
				t.Error("the certificate was not renewed")
			}
			if kept := bytes.Equal(c.get(t, pkiDir+"apiserver.key"), key); kept != keeps {
				t.Errorf("kept the key: %t", kept)
			}
			if faults := c.Faults(); len(faults) > 0 {
				t.Errorf("faults %v", faults)
			}
		})
	}
}

// TestWithin: a certificate that doesn't end soon stays as it is, even if its CA couldn't sign it, and so does one whose successor
// wouldn't last much longer.
func TestWithin(t *testing.T) {
	const day, year = 24 * time.Hour, 365 * 24 * time.Hour
	for name, row := range map[string]struct {
		period, age, within time.Duration
		renews              bool
	}{
		"all":                          {year, 0, 0, true},
		"early":                        {year, 300 * day, 30 * day, false},
		"late":                         {year, 340 * day, 30 * day, true},
		"just issued":                  {year, 0, 400 * day, false},
		"as the operator wishes":       {year, 200 * day, 300 * day, true},
		"short-lived, on the next day": {20 * day, day, 30 * day, false},
		"short-lived":                  {20 * day, 7 * day, 30 * day, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControlPlane(t)
			c.Config.Cluster.CertificateValidityPeriod.Duration = row.period
			if err := (Renewal{Store: c.Store, Name: certs.APIServer}).Renew(certs.APIServer); err != nil {
				t.Fatal(err)
			}
			cert := c.apiserver(t)
			c.host.Has.Time = time.Now().Add(row.age)
			r := Renewal{Store: c.Store, Name: certs.APIServer, Within: row.within}
			spec, _ := certs.Find(c.Config, certs.APIServer)
			if can := r.canRenew(spec); can != row.renews {
				t.Errorf("can renew: %t", can)
			}
			if err := r.Renew(certs.APIServer); err != nil {
				t.Fatal(err)
			}
			if renewed := !c.apiserver(t).Equal(cert); renewed != row.renews {
				t.Errorf("renewed: %t; said:\n%s", renewed, &c.said)
			}
		})
	}
}

// TestEndingCA: shortly before a CA ends, a certificate is renewed once, and then stays: a new one couldn't last longer.
func TestEndingCA(t *testing.T) {
	const day = 24 * time.Hour
	c := newControlPlane(t)
	authority, err := certs.FirstCert(c.get(t, pkiDir+"ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	c.host.Has.Time = authority.NotAfter.Add(-20 * day)
	r := Renewal{Store: c.Store, Within: 30 * day}
	for _, again := range []bool{false, true, true} {
		before := c.apiserver(t)
		if err := r.Renew(certs.APIServer); err != nil {
			t.Fatal(err)
		}
		if same := c.apiserver(t).Equal(before); same != again {
			t.Errorf("it stays: %t; said:\n%s", same, &c.said)
		}
		c.host.Has.Time = c.host.Has.Time.Add(day)
	}
	fact.In(t, c.said.String(), "[WARNING]", `CA "ca"`, "docs/cluster-life.md")
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, remove, want, remedy string
		all                        bool // an error also when all are renewed
	}{
		{"apiserver", pkiDir + "ca.key", `apiserver: | CA "ca"`, "`slipway certs generate-csr --cert-dir DIR --kubeconfig-dir DIR`", false},
		{"apiserver", pkiDir + "apiserver.crt", pkiDir + "apiserver.crt | nothing | renew", "`slipway init phase certs apiserver`", false},
		{"super-admin.conf", "/etc/kubernetes/super-admin.conf", "/etc/kubernetes/super-admin.conf | nothing | renew", "`slipway init phase kubeconfig super-admin`", false},
		{"etcd-peer", pkiDir + "etcd/ca.crt", pkiDir + "etcd/ca.crt | not exist", "`slipway init phase certs etcd-ca`", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newControlPlane(t)
			c.remove(t, tt.remove)
			err := Renewal{Store: c.Store, Name: tt.name}.Renew(tt.name)
			fact.Error(t, err, fact.Of(tt.want)...)
			fact.In(t, fault.Remedy(err), tt.remedy)
			err = Renewal{Store: c.Store}.Renew(tt.name)
			said := c.said.String()
			if (err != nil) != tt.all {
				t.Errorf("when all are renewed: %v; said:\n%s", err, said)
			}
			if !tt.all {
				_, remedy, _ := strings.Cut(said, "\n[WARNING]   ")
				fact.In(t, said, fact.Of(tt.want)...)
				fact.In(t, remedy, tt.remedy)
			}
		})
	}
}

func TestExpirations(t *testing.T) {
	c := newControlPlane(t)
	c.remove(t, pkiDir+"etcd/ca.key")
	c.remove(t, pkiDir+"apiserver.crt")
	leaves, authorities, err := Expirations(c.Store)
	if err != nil || len(leaves) != 11 || len(authorities) != 3 {
		t.Fatalf("%+v %+v %v", leaves, authorities, err)
	}
	for _, e := range append(leaves, authorities...) {
		external := e.Name == certs.EtcdCA || e.CA == certs.EtcdCA
		missing := e.Name == certs.APIServer
		needed := !strings.HasSuffix(e.Name, ".conf") && e.Name != "etcd-healthcheck-client"
		if e.External != external || e.Missing != missing || e.Needed != needed || e.NotAfter.Before(time.Now()) != missing {
			t.Errorf("%+v", e)
		}
	}
	if err := os.WriteFile(filepath.Join(c.root, pkiDir, "ca.crt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Expirations(c.Store); err == nil || !strings.HasPrefix(err.Error(), pkiDir+"ca.crt: ") {
		t.Errorf("of a broken file: %v", err)
	}
}

// TestRelativeNames: names in a kubeconfig file begin in its directory. What can't be read doesn't hide the rest.
func TestRelativeNames(t *testing.T) {
	c := newControlPlane(t)
	file := regexp.MustCompile(`client-(certificate|key)-data: .*`).ReplaceAll(c.get(t, adminConf), []byte("client-$1: pki/admin.pem"))
	fixture.Put(t, c.root, adminConf, string(file))
	fixture.Put(t, c.root, "/etc/kubernetes/pki/admin.pem", string(c.get(t, pkiDir+"apiserver.crt")))
	row, _ := certs.Find(c.Config, certs.Admin)
	if cert, err := c.Current(row); err != nil || !cert.Equal(c.apiserver(t)) {
		t.Fatalf("%v, %v", cert, err)
	}
	c.remove(t, "/etc/kubernetes/pki/admin.pem")
	fixture.Put(t, c.root, pkiDir+"front-proxy-ca.crt", "x")
	leaves, authorities, err := Expirations(c.Store)
	fact.Error(t, err, "front-proxy-ca.crt")
	var unread []string
	for _, e := range slices.Concat(leaves, authorities) {
		if e.Unreadable {
			unread = append(unread, e.Name)
		} else if e.Missing || e.NotAfter.IsZero() {
			t.Errorf("%+v", e)
		}
	}
	if got := strings.Join(unread, " "); got != "admin.conf front-proxy-ca" {
		t.Errorf("unreadable: %s", got)
	}
}
