// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

func TestFactsOfThisHost(t *testing.T) {
	r := New()
	name, err := r.Hostname()
	if err != nil || name == "" || name != strings.ToLower(name) {
		t.Errorf("hostname %q, error %v", name, err)
	}
	if mem, err := r.MemoryBytes(); err != nil || mem < 64<<20 || mem > 1<<50 {
		t.Errorf("memory %d, error %v", mem, err)
	}
	if release, err := r.KernelRelease(); err != nil || !strings.Contains(release, ".") {
		t.Errorf("kernel %q, error %v", release, err)
	}
	if r.NumCPU() < 1 || r.EffectiveUID() != os.Geteuid() || time.Since(r.Now()).Abs() > time.Minute {
		t.Error("CPUs, user or clock")
	}
	if path, err := r.LookPath("sh"); err != nil || !filepath.IsAbs(path) {
		t.Errorf("sh is %q, error %v", path, err)
	}
	if _, err := r.LookPath("no-such-program"); err == nil {
		t.Error("found no-such-program")
	}
	addrs, err := r.LookupHost(t.Context(), "localhost")
	if err != nil || len(addrs) == 0 || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return !a.IsLoopback() || a.Is4In6() }) {
		t.Errorf("localhost is %v, error %v", addrs, err)
	}
}

func TestSwap(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"none": {"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n", nil},
		"two": {"Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n/dev/sda2                               partition\t1000\t0\t-2\n" +
			"/swap\\040file file 1 0 -3\n", []string{"/dev/sda2", "/swap file"}},
	} {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "proc"), 0o755); err != nil {
			t.Fatal(err)
		}
		fixture.PutMode(t, filepath.Join(root, "proc/swaps"), test.text, 0o644)
		got, err := NewAt(root).Swap()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got, err := NewAt(t.TempDir()).Swap(); got != nil || err != nil {
		t.Errorf("without swap support: %v, error %v", got, err)
	}
}

func TestProgramVersion(t *testing.T) {
	t.Setenv("HUSH", "secret")
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		fixture.PutMode(t, path, "#!/bin/sh\n"+text+"\n", 0o755)
		return path
	}
	out, err := New().ProgramVersion(t.Context(), program("good", `echo " Kubernetes v1.37.2 $1 $LC_ALL$HUSH"; echo noise >&2`))
	if want := "Kubernetes v1.37.2 --version C"; out != want || err != nil {
		t.Errorf("got %q, error %v; want %q", out, err, want)
	}
	bad := program("bad", "echo no such flag >&2; echo more >&2; exit 3")
	_, err = New().ProgramVersion(t.Context(), bad)
	fact.Error(t, err, bad+": no such", "such flag: exit status 3")
	if _, err = New().ProgramVersion(t.Context(), filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = New().ProgramVersion(ctx, program("slow", "exec sleep 60"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	fact.In(t, fixture.Told(err), dir+"/slow", "`top`")
}

func TestProxyFor(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "https_proxy", "no_proxy", "REQUEST_METHOD"} {
		t.Setenv(name, "")
	}
	t.Setenv("NO_PROXY", "10.0.0.0/8")
	for _, tt := range []struct{ proxy, url, want string }{
		{"http://proxy:3128", "https://192.0.2.1:6443", "http://proxy:3128"},
		{"http://user:hush@proxy:3128", "https://192.0.2.1:6443", "http://[redacted]@proxy:3128"},
		{"user:hush@proxy:3128", "https://192.0.2.1:6443", "http://[redacted]@proxy:3128"},
		{"http://user:#hush@proxy:3128", "https://192.0.2.1:6443", "http://[redacted]@proxy:3128"},
		{"http://user:a/hush@proxy:3128", "https://192.0.2.1:6443", "http://[redacted]@proxy:3128"},
		{"http://user:a?hush@proxy:3128", "https://192.0.2.1:6443", "http://[redacted]@proxy:3128"},
		{"http://proxy:3128", "https://10.1.2.3:6443", ""},
		{"http://proxy:3128", "https://localhost", ""},
		{"http://proxy:3128", "http://192.0.2.1", ""},
	} {
		t.Setenv("HTTPS_PROXY", tt.proxy)
		if got, err := New().ProxyFor(tt.url); got != tt.want || err != nil {
			t.Errorf("%s through %s: got %q, error %v; want %q", tt.url, tt.proxy, got, err, tt.want)
		}
	}
}
