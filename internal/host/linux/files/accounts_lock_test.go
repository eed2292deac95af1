// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// childAccounts locks the accounts as lckpwdf(3) does, with a process lock.
func childAccounts(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "etc/.pwd.lock"), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_SETLKW, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return err
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin) // until its end
	return err
}

// TestLockAccounts checks the lock against useradd(8)'s.
func TestLockAccounts(t *testing.T) {
	dir := t.TempDir()
	fixture.Plant(t, dir, "etc/")
	cmd := child(t, "accounts", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
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

	_, err = lockAccounts(dir+accountsLock, 0)
	fact.Error(t, err, dir+accountsLock, "`exe init phase`", fmt.Sprintf("pid %d", cmd.Process.Pid), "0s")

	_ = stdin.Close()
	release, err := onlyFilesAt(dir).LockAccounts() // waits until the other has ended
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	_, err = lockAccounts(dir+accountsLock, 0)
	fact.Error(t, err, "another program", "0s") // within one process
	release()
	release, err = lockAccounts(dir+accountsLock, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestLockAccountsFails(t *testing.T) {
	dir := t.TempDir()
	_, err := onlyFilesAt(dir).LockAccounts()
	fact.Error(t, err, "accounts", dir+accountsLock)
}
