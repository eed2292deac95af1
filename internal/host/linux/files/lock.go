// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// Lock takes the node's lock, so that only one run at a time changes this node, or returns a *LockedError at once. The kernel
// releases the lock when the process ends, however it ends. The file is /run/slipway.lock. If /run is missing or not writable,
// it's in the directory for temporary files; if neither exists, Lock creates /run.
func (r *Root) Lock() (release func(), err error) {
	f, err := r.openLock()
	if err != nil {
		return nil, err
	}
	locked := &host.LockedError{Path: f.Name()}
	// A process writes its PID into the file a moment after it takes the lock, and
	// releases the lock a moment after it starts to exit.
	for range 20 {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			break
		}
		if locked.PID, locked.Command = holder(f); locked.PID != 0 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		defer f.Close()
		return nil, locked
	}
	if err == nil {
		err = sign(f)
	}
	if err != nil {
		f.Close()
		return nil, errors.Wrapf(err, "take the node's lock %s", f.Name())
	}
	return func() {
		// The file stays: if it were removed, a third run would lock a new file.
		_ = f.Truncate(0)
		_ = f.Close()
	}, nil
}

func (r *Root) openLock() (*os.File, error) {
	own := filepath.Join(os.TempDir(), fmt.Sprintf("slipway-%d.lock", os.Geteuid()))
	var first error
	for _, path := range []string{r.path("/run/slipway.lock"), r.path(own)} {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == nil {
			return f, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EROFS) {
			break
		}
	}
	// The root directory of an image (--rootfs) may have neither yet.
	if errors.Is(first, fs.ErrNotExist) && os.Mkdir(r.path("/run"), host.ParentMode) == nil {
		return r.openLock()
	}
	return nil, errors.Wrap(first, "take the node's lock")
}

func sign(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder returns the process that signed a lock file, if it still has the file open: the signature may be a killed run's.
func holder(f *os.File) (pid int, command string) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0, ""
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !hasOpen(pid, f) {
		return 0, ""
	}
	if command = commandOf(pid); command == "" {
		return 0, ""
	}
	return pid, command
}

// commandOf is a process's program and subcommands; "" if it's exiting: its arguments go before its files and its lock.
func commandOf(pid int) string {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(args) == 0 {
		return ""
	}
	return subcommand(strings.Split(string(args), "\x00"))
}

func hasOpen(pid int, f *os.File) bool {
	want, err := f.Stat()
	if err != nil {
		return false
	}
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		return false
	}
	return slices.ContainsFunc(fds, func(fd string) bool {
		got, err := os.Stat(fd)
		return err == nil && os.SameFile(want, got)
	})
}

// subcommand returns a program and the plain words after it. The flags and arguments after them may be secret.
func subcommand(args []string) string {
	plain := func(s string) bool {
		return s != "" && s[0] != '-' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz-") == ""
	}
	words := []string{filepath.Base(args[0])}
	for _, a := range args[1:] {
		if !plain(a) {
			break
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}

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

// lockAccounts takes an open file description lock, which excludes this file's other locks, of this and other processes.
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
