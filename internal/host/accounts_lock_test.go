// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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

// TestLockAccounts checks the lock against that of useradd(8).
func TestLockAccounts(t *testing.T) {
	dir := t.TempDir()
	plant(t, dir, "etc/")
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
	want := fmt.Sprintf("lock the accounts with %s: `exe init phase` (pid %d) has held it for 0s: wait until it has finished", dir+accountsLock, cmd.Process.Pid)
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("error\n%v, want\n%s", err, want)
	}

	_ = stdin.Close()
	release, err := NewAt(dir).LockAccounts() // waits until the other has ended
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	_, err = lockAccounts(dir+accountsLock, 0)
	if err == nil || !strings.Contains(err.Error(), ": another program has held it for 0s") {
		t.Errorf("within one process: error %v", err)
	}
	release()
	release, err = lockAccounts(dir+accountsLock, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	release()
}

func TestLockAccountsFails(t *testing.T) {
	dir := t.TempDir()
	if _, err := NewAt(dir).LockAccounts(); err == nil || !strings.HasPrefix(err.Error(), "lock the accounts with "+dir) {
		t.Errorf("without a directory: error %v", err)
	}
}
