// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"crypto/rand"
	"crypto/x509"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/renew"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// breakage is damage to a control plane's files.
type breakage struct {
	name string
	do   func(t *testing.T, s *phasetest.Stage)
	// init is in the error of the phases certs and kubeconfig, or in its remedy; renew in the error of renewing apiserver and
	// admin.conf. Neither means success.
	init, renew []string
	// remove lists the files init advises to remove. Then it succeeds.
	remove []string
}

func empty(path string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) { s.Put(t, path, "") }
}

func copied(from, to string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) { s.Put(t, to, s.Get(t, from)) }
}

func cut(path string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) {
		all := s.Get(t, path)
		s.Put(t, path, all[:len(all)/2])
	}
}

func removed(path string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) { phasetest.Fatal(t, os.Remove(filepath.Join(s.Root, path))) }
}

// linked moves the file elsewhere, or deletes it, and puts a link in its place.
func linked(path string, dangling bool) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) {
		at := filepath.Join(s.Root, path)
		phasetest.Fatal(t, os.Rename(at, at+".elsewhere"))
		phasetest.Fatal(t, os.Symlink(filepath.Base(at)+".elsewhere", at))
		if dangling {
			phasetest.Fatal(t, os.Remove(at+".elsewhere"))
		}
	}
}

func widened(path string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) {
		phasetest.Fatal(t, os.Chmod(filepath.Join(s.Root, path), 0o644))
	}
}

func directory(path string) func(*testing.T, *phasetest.Stage) {
	return func(t *testing.T, s *phasetest.Stage) {
		removed(path)(t, s)
		phasetest.Fatal(t, os.Mkdir(filepath.Join(s.Root, path), 0o755))
	}
}

const (
	crt, key, conf = phasetest.PKIDir + "apiserver.crt", phasetest.PKIDir + "apiserver.key", "/etc/kubernetes/admin.conf"
	caCrt, caKey   = phasetest.PKIDir + "ca.crt", phasetest.PKIDir + "ca.key"
	saKey, saPub   = phasetest.PKIDir + "sa.key", phasetest.PKIDir + "sa.pub"
	makeAgain      = "`slipway init phase certs apiserver`"
	makeConfAgain  = "`slipway init phase kubeconfig admin`"
	noLink, noFile = "symlink", "directory"
	deleteBoth     = "delete both"
	deleteCert     = "delete " + crt
	deleteConf     = "delete " + conf
	pair, caPair   = crt + " and " + key, caCrt + " and " + caKey
	cutOff         = "damaged: 1 of 1"
	otherKey       = "private key"
	putRight       = "the right CA"
)

var brokenCerts = []breakage{
	{"empty key", empty(key), []string{pair, "private key:", "empty", deleteBoth, makeAgain}, nil, []string{crt, key}},
	{"empty certificate", empty(crt), []string{pair, "certificate:", "empty", deleteBoth, makeAgain}, []string{crt + ":", "empty", deleteCert, makeAgain}, []string{crt, key}},
	{"key cut off", cut(key), []string{pair, "private key:", cutOff, deleteBoth, makeAgain}, nil, []string{crt, key}},
	{"certificate cut off", cut(crt), []string{pair, "certificate:", cutOff, deleteBoth, makeAgain}, []string{crt + ":", cutOff, deleteCert, makeAgain}, []string{crt, key}},
	{"key of another certificate", copied(phasetest.PKIDir+"front-proxy-client.key", key),
		[]string{crt + ":", otherKey, deleteCert + " and " + key, makeAgain}, nil, []string{crt, key}},
	{"certificate of another row", copied(phasetest.PKIDir+"front-proxy-client.crt", crt), []string{crt + ": 4 faults:"}, nil, []string{crt, key}},
	{"certificate without its key", removed(key), []string{crt + " exists", key, "the key", "delete"}, nil, []string{crt}},
	{"key without its certificate", removed(crt), nil, []string{crt, "not exist", makeAgain}, nil},
	{"key in the certificate's file", copied(key, crt), []string{crt, "private key"}, []string{crt, deleteCert, makeAgain}, []string{crt, key}},
	{"wide key", widened(key), nil, nil, nil},
	{"link to the key", linked(key, false), []string{key, noLink}, []string{key, noLink}, []string{key, crt}},
	{"dangling link for the key", linked(key, true), []string{key, noLink}, []string{key, noLink}, []string{key, crt}},
	{"link to the certificate", linked(crt, false), nil, []string{crt, noLink}, nil},
	{"dangling link for the certificate", linked(crt, true), []string{crt, noLink}, []string{crt, noLink}, []string{crt}},
	{"directory for the key", directory(key), []string{key, noFile}, []string{key, noFile}, []string{key, crt}},
	{"CA that is no CA", copied(crt, caCrt), []string{caCrt, "CA:TRUE"}, []string{putRight, caPair}, nil},
	{"another CA's certificate", copied(phasetest.PKIDir+"etcd/ca.crt", caCrt), []string{otherKey, putRight, caPair}, []string{putRight, caPair}, nil},
	{"another CA's key", copied(phasetest.PKIDir+"etcd/ca.key", caKey), []string{otherKey, putRight, caPair}, []string{putRight, caPair}, nil},
	{"empty CA", empty(caCrt), []string{caPair + ":", "certificate:", "empty", putRight}, []string{putRight}, nil},
	{"empty key of the CA", empty(caKey), []string{caPair + ":", "private key:", "empty", putRight}, []string{putRight}, nil},
	{"CA cut off", cut(caCrt), []string{caPair + ":", cutOff, putRight}, []string{putRight}, nil},
	{"wide key of the CA", widened(caKey), nil, nil, nil},
	{"link to the CA's key", linked(caKey, false), []string{caKey, noLink}, nil, nil},
	{"dangling link for the CA's key", linked(caKey, true), []string{caKey, noLink}, []string{caKey, noLink}, nil},
	{"CA without its key", removed(caKey), nil, []string{"`slipway certs generate-csr"}, nil},
	{"CA's key without the CA", removed(caCrt), []string{"another CA", "delete /etc/kubernetes/"}, []string{caCrt, "needed"}, nil},
	{"empty sa.key", empty(saKey), []string{saKey + " and " + saPub + ":", "private key:", "empty"}, nil, []string{saKey, saPub}},
	{"no key in sa.pub", copied(crt, saPub), []string{saPub, deleteBoth}, nil, []string{saPub}},
	{"sa.key of another pair", copied(caKey, saKey), []string{saPub, "public key"}, nil, []string{saPub}},
	{"sa.pub without sa.key", removed(saKey), []string{saKey, "the key"}, nil, []string{saPub}},
	{"wide sa.key", widened(saKey), nil, nil, nil},
	{"dangling link for sa.key", linked(saKey, true), []string{saKey, noLink}, nil, []string{saKey, saPub}},
	{"empty admin.conf", empty(conf), []string{deleteConf, makeConfAgain}, []string{deleteConf, makeConfAgain}, []string{conf}},
	{"admin.conf cut off", cut(conf), []string{deleteConf, makeConfAgain}, []string{deleteConf, makeConfAgain}, []string{conf}},
	{"wide admin.conf", widened(conf), nil, nil, nil},
	{"link to admin.conf", linked(conf, false), []string{conf, noLink}, []string{conf, noLink}, []string{conf}},
	{"dangling link for admin.conf", linked(conf, true), []string{conf, noLink}, []string{conf, noLink}, []string{conf}},
	{"kubeconfig of another user", copied("/etc/kubernetes/scheduler.conf", conf), []string{deleteConf, makeConfAgain}, nil, []string{conf}},
}

// TestBrokenCertificates: an error names the damage and a fix, and the fix works. No damage is accepted.
func TestBrokenCertificates(t *testing.T) {
	whole := phasetest.ControlPlaneStage(t, Init()) // each row gets a copy
	for _, b := range brokenCerts {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := copyOfStage(t, whole)
			b.do(t, s)
			renewals := append(renew.Certificates(renew.Options{Name: "apiserver"}), phasetest.Pick(renew.Certificates(renew.Options{Name: "admin.conf"}), "check", "renew")...)
			expectError(t, "renew", step.Run(t.Context(), s.Env, renewals, step.Options{}), b.renew)

			s = copyOfStage(t, whole)
			b.do(t, s)
			again := func() error {
				return step.Run(t.Context(), s.Env, []step.Phase{certificates(), kubeconfigs()}, step.Options{})
			}
			expectError(t, "init", again(), b.init)
			if strings.HasPrefix(b.name, "wide ") {
				s.SaidOnce(t, phasetest.Line{"/etc/kubernetes/", "0600", "root"})
				phasetest.Fatal(t, again())
				noneWide(t, s)
			}
			for _, path := range b.remove {
				phasetest.Fatal(t, os.RemoveAll(filepath.Join(s.Root, path)))
			}
			if b.remove != nil {
				expectError(t, "init after what it advised", again(), nil)
			}
		})
	}
}

func expectError(t *testing.T, who string, err error, want []string) {
	t.Helper()
	switch {
	case err == nil && want == nil:
	case err == nil || want == nil:
		t.Errorf("%s says %v\n  %s\nwant %q", who, err, fault.Remedy(err), want)
	default:
		fact.In(t, fault.Of(err).Plain(), want...)
	}
}

func copyOfStage(t *testing.T, from *phasetest.Stage) *phasetest.Stage {
	t.Helper()
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	phasetest.Fatal(t, filepath.WalkDir(filepath.Join(from.Root, "/etc/kubernetes"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(s.Root, strings.TrimPrefix(path, from.Root))
		if d.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, info.Mode())
	}))
	return s
}

func noneWide(t *testing.T, s *phasetest.Stage) {
	t.Helper()
	for _, path := range []string{key, caKey, saKey, conf} {
		info, err := os.Lstat(filepath.Join(s.Root, path))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

// TestKeepsCAWithoutItsKey: nothing claims to keep a key that isn't here.
func TestKeepsCAWithoutItsKey(t *testing.T) {
	s := phasetest.ControlPlaneStage(t, Init())
	key := s.Get(t, phasetest.PKIDir+"ca.key")
	for _, have := range []string{"", key} {
		if have == "" {
			phasetest.Fatal(t, s.FakeHost.Remove(phasetest.PKIDir+"ca.key"))
		} else {
			s.Put(t, phasetest.PKIDir+"ca.key", have)
		}
		s.Said.Reset()
		s.Play(t, certsCA())
		s.SaidOnce(t, phasetest.Line{"Keeping", `"ca"`})
		if strings.Contains(s.Said.String(), "certificate and key") != (have != "") {
			t.Errorf("said %s", s.Said.String())
		}
	}
}

// TestRestrictedCAIsRefusedAtOnce: nothing is signed with a CA whose certificates would be refused.
func TestRestrictedCAIsRefusedAtOnce(t *testing.T) {
	s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
	s.Play(t, certsCA())
	ca, err := s.PKI().CA(certs.CA)
	phasetest.Fatal(t, err)
	template := *ca.Cert
	template.PermittedDNSDomains, template.PermittedDNSDomainsCritical = []string{"example.org"}, true
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, ca.Key.Public(), ca.Key)
	phasetest.Fatal(t, err)
	restricted, err := x509.ParseCertificate(der)
	phasetest.Fatal(t, err)
	s.PutCA(t, certs.Pair{Cert: restricted, Key: ca.Key})
	err = step.Run(t.Context(), s.Env, []step.Phase{certificates(), kubeconfigs()}, step.Options{})
	fact.Error(t, err, phasetest.PKIDir+"ca.crt", "not permitted")
	if _, err := s.FakeHost.Lstat(phasetest.PKIDir + "apiserver.crt"); err == nil {
		t.Error("apiserver.crt was issued")
	}
	var failure *certs.Error
	if !errors.As(err, &failure) || !failure.Only(certs.Restricted) {
		t.Errorf("%v", err)
	}
}

func certsCA() step.Phase { return certificates().Children[0] }
