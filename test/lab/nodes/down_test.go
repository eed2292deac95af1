// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/lossy"
)

// diskVariable names the mount point of the disk that a copy of this test serves until it's killed.
const diskVariable = "SLIPWAY_TEST_DISK"

// A killed run leaves a disk mounted whose server went with it: nothing on it can be read. Down removes it all the same.
func TestDownWithoutDisk(t *testing.T) {
	if at := os.Getenv(diskVariable); at != "" {
		serveDisk(t, at)
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	dir := t.TempDir()
	lab, err := Open(Options{Name: "no-disk", Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	killDisk(t, lab.NodesDir(), dir)
	if _, err := lab.Nodes(); !errors.Is(err, unix.EIO) {
		t.Fatalf("a disk without its server: %v", err)
	}
	if err := lab.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(lab.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lab is still there: %v", err)
	}
}

// serveDisk mounts a disk and serves it until this process is killed.
func serveDisk(t *testing.T, at string) {
	t.Helper()
	if _, err := lossy.New(context.Background(), os.Getenv("TMPDIR"), at); err != nil {
		t.Fatal(err)
	}
	node := exec.Command("cat") // it outlives this process, as a node does
	node.Stdin = os.Stdin
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("mounted")
	select {}
}

// killDisk mounts a disk whose files are in dir, and kills the process that serves it.
func killDisk(t *testing.T, at, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestDownWithoutDisk$")
	cmd.Env = append(os.Environ(), diskVariable+"="+at, "TMPDIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	node, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = node.Close() // ends the node
		if err := errors.Join(lossy.Unmount(at), lossy.Unmount(filepath.Join(dir, "served"))); err != nil {
			t.Error(err)
		}
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || said != "mounted\n" {
		t.Errorf("the disk's server said %q: %v", said, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait() // unlike cmd.Wait, it leaves the pipe to the node open
	// The server ends right after its program. A look into the disk before that would stay in the cache.
	for err = nil; !errors.Is(err, unix.ENOTCONN); _, err = os.Stat(filepath.Join(dir, "served")) {
		time.Sleep(time.Millisecond)
	}
}
