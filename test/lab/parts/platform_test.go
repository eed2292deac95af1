// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// foreign is an architecture that this machine doesn't have.
func foreign() string {
	if runtime.GOARCH == "arm64" {
		return "amd64"
	}
	return "arm64"
}

func foreignBuilder(t *testing.T) *Builder {
	t.Helper()
	b, err := New(Options{Components: filepath.Join("..", "components"), Dir: t.TempDir(), Architecture: foreign()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Another platform's parts lie beside this machine's, which keep the names they had before there were others.
func TestPlatformStamps(t *testing.T) {
	here, there := testBuilder(t), foreignBuilder(t)
	for _, p := range []pick{{"1.37", "kubelet"}, {"1.36", "etcd"}, {"1.37", "flanneld"}} {
		native, err := here.programPart(p)
		if err != nil {
			t.Fatal(err)
		}
		other, err := there.programPart(p)
		if err != nil {
			t.Fatal(err)
		}
		kind, hash := kindOf(native), strings.TrimPrefix(native, kindOf(native))
		if want := kind + "-" + foreign() + hash; kind != "program-"+p.program || other != want {
			t.Errorf("%s is in %s here, and for %s in %s; want %s", p.program, native, foreign(), other, want)
		}
	}
	if got, want := here.stamp("debian", "bookworm"), stamp("debian", "bookworm"); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPlatforms(t *testing.T) {
	if _, err := New(Options{Components: filepath.Join("..", "components"), Dir: t.TempDir(), Architecture: "z80"}); err == nil {
		t.Error("there's a builder for an unknown architecture")
	}
	p, err := platformOf("")
	if err != nil || p.Architecture != runtime.GOARCH || p.Foreign() {
		t.Errorf("this machine's platform is %v, %v", p, err)
	}
	for _, p := range platforms {
		if !slices.Contains(p.vmPackages(), "linux-image-"+p.Architecture) || !slices.Contains(p.goEnv(), "GOARCH="+p.Architecture) {
			t.Errorf("%s gets the packages %q, and is built with %q", p.Architecture, p.vmPackages(), p.goEnv())
		}
	}
}

func TestForeignNodes(t *testing.T) {
	b := foreignBuilder(t)
	if layers, err := b.Debian(t.Context()); err == nil || !strings.Contains(err.Error(), foreign()) {
		t.Errorf("a node that can't run here is made of %q: %v", layers, err)
	}
}

// Packages install files below links such as /lib, which have to stay.
func TestUnpackPackages(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"usr/lib", "var/lib/dpkg", archives} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"liba": "lib/liba.so", "runc": "usr/sbin/runc"} {
		makePackage(t, filepath.Join(root, archives, name+".deb"), name, file)
	}
	if err := unpackPackages(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"usr/lib/liba.so", "usr/sbin/runc"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
	if to, err := os.Readlink(filepath.Join(root, "lib")); to != "usr/lib" {
		t.Errorf("/lib leads to %q: %v", to, err)
	}
	if version, err := debianVersion(tree{root}, "runc"); version != "1.0-1" {
		t.Errorf("runc has the version %q: %v", version, err)
	}
}

// makePackage makes a Debian package with one file.
func makePackage(t *testing.T, deb, name, file string) {
	t.Helper()
	dir := t.TempDir()
	control := "Package: " + name + "\nVersion: 1.0-1\nArchitecture: " + foreign() + "\nMaintainer: Nobody <nobody@slipway.test>\nDescription: test\n"
	for path, text := range map[string]string{"DEBIAN/control": control, file: "text"} {
		if err := place(dir, path, func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := output(t.Context(), "", nil, "dpkg-deb", "--build", dir, deb); err != nil {
		t.Fatal(err)
	}
}

// debootstrap removes its directory once it has finished.
func TestFinished(t *testing.T) {
	root, console := t.TempDir(), filepath.Join(t.TempDir(), "console")
	if err := finished(root, console); err != nil {
		t.Error(err)
	}
	for path, text := range map[string]string{filepath.Join(root, "debootstrap", "debootstrap.log"): "dpkg: error", console: "Kernel panic"} {
		if err := place("/", path, func(path string) error { return os.WriteFile(path, []byte(text), 0o644) }); err != nil {
			t.Fatal(err)
		}
	}
	if err := finished(root, console); err == nil || !strings.Contains(err.Error(), "dpkg: error") || !strings.Contains(err.Error(), "Kernel panic") {
		t.Errorf("got %v", err)
	}
}
