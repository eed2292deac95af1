// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// tools are programs the tests need on this machine, each with its Debian package.
var tools = [][2]string{{"lintian", "lintian"}, {"rpm", "rpm"}, {"rpmlint", "rpmlint"}, {"dnf", "dnf"}}

// debian returns the layers of the tree for installing the packages. It makes missing layers, and installs missing tools.
func debian(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("these tests install packages in a root of their own, which needs root: run them with sudo")
	}
	lab, err := parts.New(parts.Options{Components: "../test/lab/components",
		Dir: cmp.Or(os.Getenv("SLIPWAY_LAB_DIR"), "/var/cache/slipway-lab"), Log: os.Stderr})
	must(t, err)
	must(t, lab.InstallHere(t.Context(), tools...))
	layers, err := lab.Debian(t.Context())
	must(t, err)
	return layers
}

// testRelease is for this machine's architecture only; `make packages` covers both.
func testRelease(t *testing.T) *release {
	t.Helper()
	return &release{source: "..", out: t.TempDir(), work: t.TempDir(), architectures: []string{runtime.GOARCH},
		version: "v1.2.3-rc.1", commit: "0123456789abcdef0123456789abcdef01234567", date: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}
}

// packages are the packages under test.
type packages struct {
	tree []string // to install them in: layers, the topmost first
	// release is built; older is the same with an earlier version and a dummy program.
	release, older *release
	kubernetes     string
}

// of returns the package of a release in a format.
func (p *packages) of(t *testing.T, r *release, format string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.out, "slipway*."+format))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("packages: %q", found)
	}
	return found[0]
}

// TestPackages makes the packages once, for all subtests.
func TestPackages(t *testing.T) {
	p := &packages{tree: debian(t), release: testRelease(t)}
	must(t, p.release.make(t.Context()))
	t.Run("Reproducible", p.testReproducible)
	p.makeOlder(t)
	t.Run("Lintian", p.testLintian)
	t.Run("Rpmlint", p.testRpmlint)
	t.Run("Deb", p.testDeb)
	t.Run("Rpm", p.testRpm)
}

func (p *packages) makeOlder(t *testing.T) {
	t.Helper()
	kubernetes, err := p.release.kubernetes(t.Context())
	must(t, err)
	older := *p.release
	older.version, older.out, older.work = "v1.2.2", t.TempDir(), t.TempDir()
	must(t, os.CopyFS(older.work, os.DirFS(p.release.work)))
	must(t, os.WriteFile(older.program(runtime.GOARCH), []byte("#!/bin/sh\n"), 0o755))
	for _, format := range formats {
		must(t, older.pack(runtime.GOARCH, format, kubernetes))
	}
	p.older, p.kubernetes = &older, kubernetes
}
