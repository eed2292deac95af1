// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package filelock keeps two runs of the lab's programs apart.
package filelock

import (
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Take takes the lock at path and returns what gives it back. If another
// program, or another part of this one, holds it, Take calls waiting (which may
// be nil) and waits. The lock of a program that ends is free.
func Take(path string, waiting func()) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, errors.Wrap(err, "cannot make the lab's directory")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Wrap(err, "cannot open a lock")
	}
	fd := int(f.Fd())
	if err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		if waiting != nil {
			waiting()
		}
		for err = unix.EINTR; errors.Is(err, unix.EINTR); {
			err = unix.Flock(fd, unix.LOCK_EX)
		}
	}
	if err != nil {
		f.Close()
		return nil, errors.Wrap(err, "cannot take a lock")
	}
	return func() { f.Close() }, nil
}
