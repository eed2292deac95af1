// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

const pkiDir = "/etc/kubernetes/pki/"

// directory is a host in a temporary directory, and the output.
type directory struct {
	Store
	root string
	said *bytes.Buffer
}

func newDirectory(t *testing.T) directory {
	t.Helper()
	n := fixture.Node(t, fixture.InitDocument+fixture.ClusterDocument)
	d := directory{root: t.TempDir(), said: &bytes.Buffer{}}
	d.Store = Store{Host: linux.NewAt(d.root), Config: n, UI: ui.NewLines(d.said, d.said)}
	return d
}

func (d directory) fill(t *testing.T) {
	t.Helper()
	for _, row := range certs.Specs(d.Config) {
		if err := d.Ensure(row, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func (d directory) find(t *testing.T, name string) certs.Spec {
	t.Helper()
	row, found := certs.Find(d.Config, name)
	if !found {
		t.Fatalf("no row %q", name)
	}
	return row
}

func (d directory) get(t *testing.T, path string) string {
	t.Helper()
	return fixture.Get(t, d.root, path)
}

func (d directory) put(t *testing.T, path, text string) {
	t.Helper()
	fixture.Put(t, d.root, path, text)
}

// TestFaults: Ensure's files have no faults, now and after Ensure runs again. Another server isn't a fault.
func TestFaults(t *testing.T) {
	d := newDirectory(t)
	if faults := d.Faults(); faults != nil {
		t.Errorf("without files: %v", faults)
	}
	d.fill(t)
	d.put(t, "/etc/kubernetes/admin.conf", strings.Replace(d.get(t, "/etc/kubernetes/admin.conf"), "192.0.2.11:6443", "lb.example:443", 1))
	if faults := d.Faults(); faults != nil {
		t.Errorf("of correct files: %v", faults)
	}
	d.fill(t)
	said := d.said.String()
	fact.In(t, said, "Keeping", `"etcd/ca"`)
	_, warned, _ := strings.Cut(said, "[WARNING] ")
	line, rest, _ := strings.Cut(warned, "\n")
	remedy, _, _ := strings.Cut(rest, "\n")
	fact.In(t, line, `"https://lb.example:443"`, `"https://192.0.2.11:6443"`)
	fact.In(t, remedy, "[WARNING]", "/etc/kubernetes/admin.conf")
	d.put(t, pkiDir+"apiserver.key", d.get(t, pkiDir+"etcd/server.key"))
	d.put(t, "/etc/kubernetes/scheduler.conf", d.get(t, "/etc/kubernetes/admin.conf"))
	var faults string
	for _, err := range d.Faults() {
		faults += fault.Of(err).Plain() + "\n"
	}
	for _, want := range []string{pkiDir + "apiserver.crt: ", "private key", pkiDir + "apiserver.key",
		"/etc/kubernetes/scheduler.conf: ", "`slipway init phase kubeconfig scheduler`"} {
		if !strings.Contains(faults, want) {
			t.Errorf("no %q in\n%s", want, faults)
		}
	}
}

// TestReplaceKeepsOwner of a private file if no static Pod determines the owner. A file that others could read belongs to root
// afterwards.
func TestReplaceKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	d := newDirectory(t)
	d.fill(t)
	row := d.find(t, certs.APIServer)
	for mode, want := range map[fs.FileMode]host.Owner{0o600: {UID: 997, GID: 996}, 0o640: {}} {
		path := filepath.Join(d.root, pkiDir, "apiserver.key")
		if err := errors.Join(os.Chown(path, 997, 996), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
		old, err := d.Current(row)
		if err != nil {
			t.Fatal(err)
		}
		key, err := d.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Replace(row, certs.Pair{Cert: old, Key: key}); err != nil {
			t.Fatal(err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := host.OwnerIn(info); got != want || info.Mode() != 0o600 {
			t.Errorf("mode %04o before: now owner %v and mode %v, want owner %v", mode, got, info.Mode(), want)
		}
	}
}

func TestServiceAccountKeys(t *testing.T) {
	d := newDirectory(t)
	if err := d.EnsureServiceAccountKeys(nil); err != nil {
		t.Fatal(err)
	}
	pub := d.get(t, pkiDir+"sa.pub")
	if err := os.Remove(filepath.Join(d.root, pkiDir, "sa.pub")); err != nil {
		t.Fatal(err)
	}
	if err := d.EnsureServiceAccountKeys(nil); err != nil || d.get(t, pkiDir+"sa.pub") != pub {
		t.Errorf("sa.pub was not derived from sa.key: %v", err)
	}
	// Without the public key, a broken private key isn't replaced either.
	if err := os.Remove(filepath.Join(d.root, pkiDir, "sa.pub")); err != nil {
		t.Fatal(err)
	}
	d.put(t, pkiDir+"sa.key", "no key")
	err := d.EnsureServiceAccountKeys(nil)
	fact.Error(t, err, pkiDir+"sa.key:", "PEM")
	fact.In(t, fault.Remedy(err), "key", "delete")
}

// TestGenerateCSRs writes a key and a request for each leaf, and nothing if one of the files exists.
func TestGenerateCSRs(t *testing.T) {
	d := newDirectory(t)
	d.put(t, "/etc/kubernetes/scheduler.conf.csr", "in use")
	if err := d.GenerateCSRs(); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "scheduler.conf.csr") {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(d.root, pkiDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written: %v", err)
	}
	if err := os.Remove(filepath.Join(d.root, "/etc/kubernetes/scheduler.conf.csr")); err != nil {
		t.Fatal(err)
	}
	if err := d.GenerateCSRs(); err != nil {
		t.Fatal(err)
	}
	for _, row := range certs.Specs(d.Config) {
		files := d.Files(row)
		key := files[len(files)-1]
		_, err := os.Stat(filepath.Join(d.root, key))
		if row.IsCA() != errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", key, err)
		}
	}
	if !strings.Contains(d.get(t, pkiDir+"etcd/peer.csr"), "CERTIFICATE REQUEST") {
		t.Error("etcd/peer.csr is not a request")
	}
}

// TestUserKubeconfig: a certificate expires no later than its CA.
func TestUserKubeconfig(t *testing.T) {
	d := newDirectory(t)
	d.fill(t)
	data, err := d.UserKubeconfig(User{Name: "me", Groups: []string{"a"}, Validity: 100 * 365 * 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	cert, _, err := kubeconfig.ClientCertificate(data)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := certs.FirstCert(cert)
	if err != nil || leaf.Subject.CommonName != "me" || strings.Join(leaf.Subject.Organization, " ") != "a" || !strings.Contains(d.said.String(), " CA") {
		t.Errorf("%v, error %v; said:\n%s", leaf.Subject, err, d.said)
	}
	if _, err := d.UserKubeconfig(User{Name: "me"}); err == nil {
		t.Error("a validity of zero was accepted")
	}
}
