// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The main thread has to stay as it is; tests with their own namespaces run on other threads.
func init() { runtime.LockOSThread() }

// root is a file system that a test may change: its writes are kept in memory, and go away with it. Its programs reach no
// network.
type root struct {
	t   *testing.T
	dir string
}

// newRoot lays a root over the layers of a tree, which stay unchanged. The calling test keeps its thread, in namespaces of its
// own, until both end.
func newRoot(t *testing.T, tree ...string) *root {
	t.Helper()
	dir := t.TempDir()
	runtime.LockOSThread()
	must(t, unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_NEWNET))
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	for _, name := range []string{"upper", "work", "root"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	r := &root{t: t, dir: filepath.Join(dir, "root")}
	must(t, unix.Mount("overlay", r.dir, "overlay", 0, "lowerdir="+strings.Join(tree, ":")+",upperdir="+dir+"/upper,workdir="+dir+"/work"))
	must(t, unix.Mount("proc", r.path("/proc"), "proc", 0, ""))
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// path returns a root's path as the test sees it.
func (r *root) path(path string) string { return filepath.Join(r.dir, path) }

func (r *root) write(path, text string) {
	r.t.Helper()
	must(r.t, os.MkdirAll(filepath.Dir(r.path(path)), 0o755))
	must(r.t, os.WriteFile(r.path(path), []byte(text), 0o644))
}

// read returns a file's text; empty if it's missing.
func (r *root) read(path string) string {
	r.t.Helper()
	text, err := os.ReadFile(r.path(path))
	if err != nil && !os.IsNotExist(err) {
		r.t.Fatal(err)
	}
	return string(text)
}

// has reports whether a path exists, even as a dangling link.
func (r *root) has(path string) bool {
	_, err := os.Lstat(r.path(path))
	return err == nil
}

// bring copies the test's files into the directory /packages, and returns their paths there.
func (r *root) bring(files ...string) []string {
	r.t.Helper()
	var paths []string
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(r.t, err)
		path := filepath.Join("/packages", filepath.Base(file))
		r.write(path, string(data))
		paths = append(paths, path)
	}
	return paths
}

// run runs a program that must succeed, and returns its output.
func (r *root) run(args ...string) string {
	r.t.Helper()
	said, err := r.try(args...)
	if err != nil {
		r.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, said)
	}
	return said
}

// refuses runs a program that must fail and say why.
func (r *root) refuses(why string, args ...string) {
	r.t.Helper()
	said, err := r.try(args...)
	if err == nil || !strings.Contains(said, why) {
		r.t.Errorf("%s: %v, without %q:\n%s", strings.Join(args, " "), err, why, said)
	}
}

func (r *root) try(args ...string) (string, error) {
	return combined(exec.Command("chroot", append([]string{r.dir}, args...)...))
}

// combined runs a command in a minimal environment, and returns its output.
func combined(cmd *exec.Cmd) (string, error) {
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	said, err := cmd.CombinedOutput()
	return string(said), err
}

// files maps everything below some directories by path: modes and contents, and times on request.
func (r *root) files(times bool, dirs ...string) map[string]string {
	r.t.Helper()
	found := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(r.path(dir), func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			described := info.Mode().String()
			switch {
			case info.Mode().IsRegular():
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				described += fmt.Sprintf(" %x", sha256.Sum256(data))
			case info.Mode()&fs.ModeSymlink != 0:
				to, err := os.Readlink(path)
				if err != nil {
					return err
				}
				described += " " + to
			}
			if times {
				described += info.ModTime().String()
			}
			found[strings.TrimPrefix(path, r.dir)] = described
			return nil
		})
		must(r.t, err)
	}
	return found
}
