// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// breakage is damage to the files of a control plane.
type breakage struct {
	name string
	do   func(t *testing.T, s *stage)
	// init is the error of the phases certs and kubeconfig, renew that of renewing apiserver and admin.conf. Empty
	// means success.
	init, renew string
	// remove are the files that init advises to remove. Then it succeeds.
	remove []string
}

func empty(path string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) { s.put(t, path, "") }
}

// copied copies one file over another.
func copied(from, to string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) { s.put(t, to, s.get(t, from)) }
}

func cut(path string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) {
		all := s.get(t, path)
		s.put(t, path, all[:len(all)/2])
	}
}

func removed(path string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) { fatal(t, os.Remove(filepath.Join(s.root, path))) }
}

// linked moves the file elsewhere, or deletes it, and puts a link in its place.
func linked(path string, dangling bool) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) {
		at := filepath.Join(s.root, path)
		fatal(t, os.Rename(at, at+".elsewhere"))
		fatal(t, os.Symlink(filepath.Base(at)+".elsewhere", at))
		if dangling {
			fatal(t, os.Remove(at+".elsewhere"))
		}
	}
}

func widened(path string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) { fatal(t, os.Chmod(filepath.Join(s.root, path), 0o644)) }
}

func directory(path string) func(*testing.T, *stage) {
	return func(t *testing.T, s *stage) {
		removed(path)(t, s)
		fatal(t, os.Mkdir(filepath.Join(s.root, path), 0o755))
	}
}

func fatal(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	crt, key, conf    = pkiDir + "apiserver.crt", pkiDir + "apiserver.key", "/etc/kubernetes/admin.conf"
	caCrt, caKey      = pkiDir + "ca.crt", pkiDir + "ca.key"
	saKey, saPub      = pkiDir + "sa.key", pkiDir + "sa.pub"
	makeAgain         = " and run `slipway init phase certs apiserver`"
	makeConfAgain     = "\n  delete " + conf + " and run `slipway init phase kubeconfig admin`"
	putCA             = "a CA is never replaced"
	keepsCA           = "\n  put the right CA in " + caCrt + " and " + caKey
	noLink, noFile    = " is a symlink where a regular file should be", " is a directory where a regular file should be"
	narrowedLine      = " to 0600: only root can read it now"
	emptyCert, noKey  = "the certificate: the file is empty\n  ", "the private key: the file is empty\n  "
	cutOff            = "PEM blocks that are truncated or damaged: 1 of 1\n  delete "
	deleteServiceKeys = "if you do not have the private key, delete both and run the phase again"
)

var brokenCerts = []breakage{
	{"empty key", empty(key), noKey + "delete both" + makeAgain, "", []string{crt, key}},
	{"empty certificate", empty(crt), emptyCert + "delete both" + makeAgain, crt + ": the file is empty\n  delete " + crt + makeAgain, []string{crt, key}},
	{"key cut off", cut(key), "the private key: " + cutOff + "both" + makeAgain, "", []string{crt, key}},
	{"certificate cut off", cut(crt), "the certificate: " + cutOff + "both" + makeAgain, crt + ": " + cutOff + crt + makeAgain, []string{crt, key}},
	{"key of another certificate", copied(pkiDir+"front-proxy-client.key", key),
		crt + ": the private key belongs to another certificate\n  delete " + crt + " and " + key + makeAgain, "", []string{crt, key}},
	{"certificate of another row", copied(pkiDir+"front-proxy-client.crt", crt), crt + ": 4 faults:", "", []string{crt, key}},
	{"certificate without its key", removed(key), crt + " exists without its key " + key + "\n  put the key there, or delete the certificate", "", []string{crt}},
	{"key without its certificate", removed(crt), "", crt + " does not exist, so there is nothing to renew\n  create it with `slipway init phase certs apiserver`", nil},
	{"key in the certificate's file", copied(key, crt), "the file also holds a private key", "delete " + crt + makeAgain, []string{crt, key}},
	{"wide key", widened(key), "", "", nil},
	{"link to the key", linked(key, false), key + noLink, key + noLink, []string{key, crt}},
	{"dangling link for the key", linked(key, true), key + noLink, key + noLink, []string{key, crt}},
	{"link to the certificate", linked(crt, false), "", crt + noLink, nil},
	{"dangling link for the certificate", linked(crt, true), crt + noLink, crt + noLink, []string{crt}},
	{"directory for the key", directory(key), key + noFile, key + noFile, []string{key, crt}},
	{"CA that is no CA", copied(crt, caCrt), "not a CA certificate: the basic constraints lack CA:TRUE", keepsCA, nil},
	{"another CA's certificate", copied(pkiDir+"etcd/ca.crt", caCrt), "the private key belongs to another certificate" + keepsCA, keepsCA, nil},
	{"another CA's key", copied(pkiDir+"etcd/ca.key", caKey), "the private key belongs to another certificate" + keepsCA, keepsCA, nil},
	{"empty CA", empty(caCrt), caCrt + " and " + caKey + ": " + emptyCert + "put the right CA there", putCA, nil},
	{"empty key of the CA", empty(caKey), caCrt + " and " + caKey + ": " + noKey + "put the right CA there", putCA, nil},
	{"CA cut off", cut(caCrt), "put the right CA there", putCA, nil},
	{"wide key of the CA", widened(caKey), "", "", nil},
	{"link to the CA's key", linked(caKey, false), caKey + noLink, "", nil},
	{"dangling link for the CA's key", linked(caKey, true), caKey + noLink, caKey + noLink, nil},
	{"CA without its key", removed(caKey), "", "`slipway certs generate-csr", nil},
	{"CA's key without the CA", removed(caCrt), "trusts another CA than the cluster's\n  delete /etc/kubernetes/", caCrt + " does not exist, but is needed", nil},
	{"empty sa.key", empty(saKey), saKey + " and " + saPub + ": " + noKey, "", []string{saKey, saPub}},
	{"no key in sa.pub", copied(crt, saPub), deleteServiceKeys, "", []string{saPub}},
	{"sa.key of another pair", copied(caKey, saKey), "delete the file of the public key", "", []string{saPub}},
	{"sa.pub without sa.key", removed(saKey), "put the key there, or delete the public one", "", []string{saPub}},
	{"wide sa.key", widened(saKey), "", "", nil},
	{"dangling link for sa.key", linked(saKey, true), saKey + noLink, "", []string{saKey, saPub}},
	{"empty admin.conf", empty(conf), makeConfAgain, makeConfAgain, []string{conf}},
	{"admin.conf cut off", cut(conf), makeConfAgain, makeConfAgain, []string{conf}},
	{"wide admin.conf", widened(conf), "", "", nil},
	{"link to admin.conf", linked(conf, false), conf + noLink, conf + noLink, []string{conf}},
	{"dangling link for admin.conf", linked(conf, true), conf + noLink, conf + noLink, []string{conf}},
	{"kubeconfig of another user", copied("/etc/kubernetes/scheduler.conf", conf), makeConfAgain, "", []string{conf}},
}

// TestBrokenCertificates: an error names what is broken and says how to fix it, and that fix works. No damage is
// accepted.
func TestBrokenCertificates(t *testing.T) {
	whole := controlPlaneStage(t) // each row gets a copy of it
	for _, b := range brokenCerts {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			s := copyOfStage(t, whole)
			b.do(t, s)
			renewals := append(Renew(RenewOptions{Name: "apiserver"}), Renew(RenewOptions{Name: "admin.conf"})[0])
			says(t, "renew", Run(t.Context(), s.Env, renewals, Options{}), b.renew)

			s = copyOfStage(t, whole)
			b.do(t, s)
			again := func() error { return Run(t.Context(), s.Env, []Phase{certificates(), kubeconfigs()}, Options{}) }
			says(t, "init", again(), b.init)
			if strings.HasPrefix(b.name, "wide ") {
				if lines := s.said.String(); strings.Count(lines, narrowedLine) != 1 {
					t.Errorf("the output does not name the mode:\n%s", lines)
				}
				fatal(t, again())
				noneWide(t, s)
			}
			for _, path := range b.remove {
				fatal(t, os.RemoveAll(filepath.Join(s.root, path)))
			}
			if b.remove != nil {
				says(t, "init after what it advised", again(), "")
			}
		})
	}
}

func says(t *testing.T, who string, err error, want string) {
	t.Helper()
	if err == nil && want == "" {
		return
	}
	if err == nil || want == "" || !strings.Contains(fault.Of(err).String(), want) {
		t.Errorf("%s says %v\n  %s\nwant %q", who, err, fault.Remedy(err), want)
	}
}

// copyOfStage has the same files on another host.
func copyOfStage(t *testing.T, from *stage) *stage {
	t.Helper()
	s := newStage(t, fixture.InitDocument+fixture.ClusterDocument)
	fatal(t, filepath.WalkDir(filepath.Join(from.root, "/etc/kubernetes"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(s.root, strings.TrimPrefix(path, from.root))
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

func noneWide(t *testing.T, s *stage) {
	t.Helper()
	for _, path := range []string{key, caKey, saKey, conf} {
		info, err := os.Lstat(filepath.Join(s.root, path))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
