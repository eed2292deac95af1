// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

const victimEnv = "SLIPWAY_KILL_TEST_VICTIM"

func TestMain(m *testing.M) {
	Play()
	if dir := os.Getenv(victimEnv); dir != "" {
		if err := victim(dir); err != nil {
			panic(err)
		}
		os.Exit(3)
	}
	os.Exit(m.Run())
}

// victim makes six changes in a directory, from two threads, and one elsewhere.
func victim(dir string) error {
	path := filepath.Join(dir, "a")
	done := make(chan error)
	go func() { done <- os.WriteFile(path, []byte("text"), 0o600) }() // openat, write
	if err := <-done; err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "../elsewhere"), nil, 0o600); err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return errors.Join(f.Chmod(0o644), f.Sync(), os.Rename(path, path+"2"), os.Mkdir(path, 0o700), unix.Rmdir(path))
}

func TestEachStep(t *testing.T) {
	base := t.TempDir()
	for at := 0; at <= 6; at++ {
		dir := filepath.Join(base, string(rune('0'+at)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), victimEnv+"="+dir)
		run := Run{Below: []string{dir}, At: at}
		if err := run.Do(cmd); errors.Is(err, ErrNotAllowed) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		if at == 0 {
			checkSteps(t, dir, run)
			continue
		}
		if run.Changes != at || run.Status.Signal() != unix.SIGKILL {
			t.Errorf("%d: %d changes, %v", at, run.Changes, run.Status)
		}
		if diff := cmp.Diff(left[at-1], listing(t, dir)); diff != "" {
			t.Errorf("killed before step %d, there is (-want +got):\n%s", at, diff)
		}
	}
}

// TestFail: a call fails without effect, and the program reads the error.
func TestFail(t *testing.T) {
	if !CanFail {
		t.Skip("calls cannot be made to fail on this kind of machine")
	}
	dir := t.TempDir()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victimEnv+"="+dir)
	var said strings.Builder
	cmd.Stderr = &said
	run := Run{Below: []string{dir}, At: 2, Fail: unix.ENOSPC} // the write
	if err := run.Do(cmd); errors.Is(err, ErrNotAllowed) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if run.Status.ExitStatus() != 2 || !strings.Contains(said.String(), unix.ENOSPC.Error()) {
		t.Errorf("%v: %s", run.Status, said.String())
	}
	if diff := cmp.Diff(left[1], listing(t, dir)); diff != "" {
		t.Errorf("there is (-want +got):\n%s", diff)
	}
}

// left lists the files that exist if the victim is killed before each change.
var left = [][]string{nil, {"a -rw------- 0"}, {"a -rw------- 4"}, {"a -rw-r--r-- 4"}, {"a2 -rw-r--r-- 4"}, {"a drwx------ 0", "a2 -rw-r--r-- 4"}}

func checkSteps(t *testing.T, dir string, run Run) {
	t.Helper()
	var got []string
	for _, s := range run.Steps {
		rel, _ := filepath.Rel(dir, s.Path)
		got = append(got, s.Call+" "+rel)
	}
	want := []string{"openat a", "write a", "fchmod a", "fsync a", "renameat a2", "mkdirat a", "unlinkat a"}
	if diff := cmp.Diff(want, got); diff != "" || run.Status.ExitStatus() != 3 {
		t.Errorf("status %v, steps (-want +got):\n%s", run.Status, diff)
	}
}

func listing(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		size := info.Size()
		if info.IsDir() {
			size = 0
		}
		list = append(list, fmt.Sprintf("%s %s %d", e.Name(), info.Mode(), size))
	}
	return list
}
