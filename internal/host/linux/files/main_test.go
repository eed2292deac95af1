// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/apart"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/kill"
	"github.com/slipway-k8s/slipway/test/leaks"
)

// childEnv names this binary's job if a test starts it as a separate process.
const childEnv = "SLIPWAY_HOST_TEST_CHILD"

func TestMain(m *testing.M) {
	kill.Play()
	children := map[string]func(dir string) error{
		"write": childWrite, "limit": childLimit, "disk": childDisk, "lock": childLock, "accounts": childAccounts, "sync": childSync,
	}
	if child := children[os.Getenv(childEnv)]; child != nil {
		if err := child(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaks.Main(m)
}

func child(t *testing.T, name, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "init", "phase", "--token", "abcdef.0123456789abcdef", dir)
	cmd.Env = append(os.Environ(), childEnv+"="+name)
	cmd.Stderr = t.Output()
	return cmd
}

var killContents = [][]byte{bytes.Repeat([]byte("a"), 300_000), bytes.Repeat([]byte("b"), 500_000)}

func childWrite(dir string) error {
	fmt.Println("ready")
	for i := 0; ; i++ {
		if _, err := onlyFiles().WriteSecret(filepath.Join(dir, "ca.key"), killContents[i%2]); err != nil {
			return err
		}
	}
}

// A run killed while writing leaves a complete file. The next run removes its leftovers.
func TestWriteFileKilled(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ca.key")
	for i := range 10 {
		cmd := child(t, "write", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i)*time.Millisecond + 500*time.Microsecond) // another instant each time
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		got, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // killed before the first rename
		}
		if err != nil || (!bytes.Equal(got, killContents[0]) && !bytes.Equal(got, killContents[1])) {
			t.Fatalf("read %d bytes, error %v", len(got), err)
		}
	}
	if _, err := onlyFiles().WriteSecret(path, []byte("key")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ca.key"}, fixture.Entries(t, dir)); diff != "" {
		t.Errorf("directory (-want +got):\n%s", diff)
	}
}

// childLimit writes more than its limit: the write fails half-way.
func childLimit(dir string) error {
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: 1000}); err != nil {
		return err
	}
	return expectFailure(dir, unix.EFBIG, "")
}

// childDisk fills a small disk in its own mount namespace, then makes it read-only.
func childDisk(dir string) error {
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
		return err
	}
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("old"), 0o644); err != nil {
		return err
	}
	if err := expectFailure(dir, unix.ENOSPC, "free some"); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		return err
	}
	if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, "size=64k"); err != nil {
		return err
	}
	for _, name := range []string{"empty", "missing"} {
		if removed, err := onlyFiles().RemoveEmpty(filepath.Join(dir, name)); err != nil || removed {
			return fmt.Errorf("%s on a read-only file system: removed %v, error %w", name, removed, err)
		}
	}
	return expectFailure(dir, unix.EROFS, "writable")
}

func expectFailure(dir string, cause error, remedy string) error {
	path := filepath.Join(dir, "f")
	changed, err := onlyFiles().WriteFile(path, make([]byte, 100_000), 0o644)
	if changed || !errors.Is(err, cause) || !strings.Contains(err.Error(), path+": ") || !strings.Contains(err.Error(), remedy) {
		return fmt.Errorf("changed %v, error %w, want %q", changed, err, remedy)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() != "f" && !e.IsDir() }) {
		return fmt.Errorf("the directory holds %v, error %w", entries, err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		return fmt.Errorf("the file holds %d bytes, error %w", len(got), err)
	}
	return nil
}

func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	fixture.PutMode(t, filepath.Join(dir, "f"), "old", 0o644)
	if err := child(t, "limit", dir).Run(); err != nil {
		t.Error(err)
	}
}

func TestWriteFileDiskFull(t *testing.T) {
	apart.Run(t, child(t, "disk", t.TempDir()), unix.CLONE_NEWNS)
}

func childLock(dir string) error {
	if _, err := onlyFilesAt(dir).Lock(); err != nil {
		return err
	}
	fmt.Println("locked")
	_, err := io.Copy(io.Discard, os.Stdin) // until killed
	return err
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := child(t, "lock", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(dir, "run/slipway.lock")
	_, err = onlyFilesAt(dir).Lock()
	want := &host.LockedError{Path: path, PID: cmd.Process.Pid, Command: "exe init phase"}
	var got *host.LockedError
	if !errors.As(err, &got) || !cmp.Equal(want, got) {
		t.Errorf("error\n%v, want\n%v", err, want)
	}
	if strings.Contains(err.Error(), "0123456789abcdef") {
		t.Errorf("a secret in the error: %v", err)
	}

	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	release, err := onlyFilesAt(dir).Lock() // the kernel has released it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := onlyFilesAt(dir).Lock(); !errors.As(err, &got) || got.PID != os.Getpid() {
		t.Errorf("the same process again: error %v", err)
	}
	release()
	release, err = onlyFilesAt(dir).Lock()
	if err != nil {
		t.Fatal(err)
	}
	release()
}

// Only the holder's own signature counts.
func TestLockStaleSignature(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	release, err := onlyFilesAt(dir).Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	path := filepath.Join(dir, "run/slipway.lock")
	for _, text := range []string{"1\n", "", "nonsense", "999999999"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := onlyFilesAt(dir).Lock()
		var locked *host.LockedError
		if !errors.As(err, &locked) || *locked != (host.LockedError{Path: path}) {
			t.Errorf("%q: error %v", text, err)
		}
		fact.Error(t, err, path, "wait")
	}
}

// A process that has ended isn't named by arguments it no longer has.
func TestLockHolderThatEnds(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "true")
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	if _, err := io.ReadAll(stdout); err != nil { // until it has closed its files
		t.Fatal(err)
	}
	if got := commandOf(cmd.Process.Pid); got != "" {
		t.Errorf("a process that has ended is called %q", got)
	}
}

func TestLockRefusesSymlink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "run"), 0o755); err != nil {
		t.Fatal(err)
	}
	fixture.PutMode(t, filepath.Join(dir, "victim"), "precious", 0o644)
	if err := os.Symlink("../victim", filepath.Join(dir, "run/slipway.lock")); err != nil {
		t.Fatal(err)
	}
	if _, err := onlyFilesAt(dir).Lock(); !errors.Is(err, unix.ELOOP) {
		t.Errorf("error %v", err)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "victim")); string(got) != "precious" {
		t.Errorf("wrote through a symlink: %q", got)
	}
}

func TestLockInAnEmptyRoot(t *testing.T) {
	root := t.TempDir()
	release, err := onlyFilesAt(root).Lock()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	var locked *host.LockedError
	if _, err := onlyFilesAt(root).Lock(); !errors.As(err, &locked) || locked.Path != filepath.Join(root, "run/slipway.lock") {
		t.Errorf("error %v", err)
	}
}

// checkKind checks an error about a path of the wrong kind.
func checkKind(t *testing.T, err error, path, got, want string) {
	t.Helper()
	var typed *host.KindError
	if !errors.As(err, &typed) || typed.Path != path || typed.Want != want {
		t.Errorf("error %v, want a %s at %s in the place of a %s", err, got, path, want)
	}
	fact.Error(t, err, path, got, want)
}
