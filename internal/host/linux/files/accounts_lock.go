// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"os"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

const (
	// accountsLock is the accounts' lock file for glibc's lckpwdf(3), shadow's tools (which call it) and systemd.
	accountsLock = "/etc/.pwd.lock"
	// accountsWait is how long lckpwdf waits.
	accountsWait = 15 * time.Second
	accountsPoll = 50 * time.Millisecond
)

func (r *Root) LockAccounts() (release func(), err error) {
	return lockAccounts(r.path(accountsLock), accountsWait)
}

// lockAccounts takes an open file description lock. It excludes other processes' locks on this file, and other locks of this
// process.
func lockAccounts(path string, wait time.Duration) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, host.Explain("lock the accounts with", path, err)
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(accountsPoll) {
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		if err == nil {
			return func() { _ = f.Close() }, nil // this releases the lock
		}
		busy := errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES)
		if busy && time.Now().Before(deadline) {
			continue
		}
		if busy {
			err = errors.Errorf("%s has held it for %s: wait until it has finished, then run the same command again", accountsHolder(f), wait)
		}
		_ = f.Close()
		return nil, host.Explain("lock the accounts with", path, err)
	}
}

// accountsHolder names the process that holds the lock. For an open file description lock, the kernel doesn't report the process.
func accountsHolder(f *os.File) string {
	held := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &held); err != nil || held.Pid <= 0 {
		return "another program"
	}
	if command := commandOf(int(held.Pid)); command != "" {
		return fmt.Sprintf("`%s` (pid %d)", command, held.Pid)
	}
	return fmt.Sprintf("process %d", held.Pid)
}
