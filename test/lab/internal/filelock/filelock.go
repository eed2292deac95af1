// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package filelock keeps two runs of the lab's programs apart.
package filelock

import (
	"context"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// Take takes the lock at path and returns a function to release it. If another program, or another part of this one, holds the
// lock, Take calls waiting (which may be nil) and waits until it's free or ctx ends. A program's locks are released when it ends.
func Take(ctx context.Context, path string, waiting func()) (release func(), err error) {
	f, err := take(ctx, path, unix.LOCK_EX, waiting)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// Shared is a lock that any number of programs can hold at a time, but not while a program holds it exclusively.
type Shared struct{ file *os.File }

// Share takes the lock at path, together with others.
func Share(ctx context.Context, path string, waiting func()) (*Shared, error) {
	f, err := take(ctx, path, unix.LOCK_SH, waiting)
	return &Shared{f}, err
}

// Alone makes the lock exclusive. If another program holds it too, it's lost, and Alone returns false.
func (s *Shared) Alone() bool {
	return unix.Flock(int(s.file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
}

// Release gives the lock back.
func (s *Shared) Release() { s.file.Close() }

func take(ctx context.Context, path string, how int, waiting func()) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, errors.Wrap(err, "cannot make the lab's directory")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Wrap(err, "cannot open a lock")
	}
	fd := int(f.Fd())
	err = unix.Flock(fd, how|unix.LOCK_NB)
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return keep(f, err)
	}
	if waiting != nil {
		waiting()
	}
	taken := make(chan error, 1)
	go func() {
		err := unix.Flock(fd, how)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(fd, how)
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		return keep(f, err)
	case <-ctx.Done():
		go func() {
			<-taken
			f.Close()
		}()
		return nil, errors.Wrap(ctx.Err(), "waiting for a lock")
	}
}

func keep(f *os.File, err error) (*os.File, error) {
	if err != nil {
		f.Close()
		return nil, errors.Wrap(err, "cannot take a lock")
	}
	return f, nil
}
