// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"
)

// isolated reports whether this process has its own namespaces, in which a test may mount file systems and change the
// network. If not, it runs the test in such a process and returns false. It does not need root.
func isolated(t *testing.T) bool {
	t.Helper()
	const variable = "SLIPWAY_TEST_ISOLATED"
	if os.Getenv(variable) != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"=1")
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	runApart(t, cmd, unix.CLONE_NEWNS|unix.CLONE_NEWNET)
	return false
}

// bind mounts a directory on another until the test ends.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}
