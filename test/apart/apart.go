// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package apart runs tests in their own namespaces.
package apart

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Isolated reports whether this process has its own namespaces, in which a test may mount file systems and change the
// network. If not, it runs the test in such a process and returns false. It does not need root.
func Isolated(t *testing.T) bool {
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
	Run(t, cmd, unix.CLONE_NEWNS|unix.CLONE_NEWNET)
	return false
}

// Bind mounts a directory on another until the test ends.
func Bind(t *testing.T, from, to string) {
	t.Helper()
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(to, unix.MNT_DETACH) })
}

// Run runs cmd as root of its own namespaces.
func Run(t *testing.T, cmd *exec.Cmd, namespaces uintptr) {
	t.Helper()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	err := cmd.Run()
	if errors.Is(err, os.ErrPermission) {
		t.Skipf("this machine gives no namespace: %v", err)
	}
	if err != nil {
		t.Error(err)
	}
}
