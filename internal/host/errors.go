// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"os"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// KindError reports a path of the wrong kind, such as a symlink where a regular file should be.
type KindError struct {
	Path string
	Want string // such as "regular file"
	Got  fs.FileMode
}

func (e *KindError) Error() string {
	if e.Want == "directory" && e.Got&fs.ModeSymlink != 0 {
		return fmt.Sprintf("%s is a symlink that does not lead to a directory: "+
			"create the directory that it names or remove the link, then run the same command again", e.Path)
	}
	return fmt.Sprintf("%s is a %s where a %s should be, and Slipway does not replace or follow it: "+
		"move it away or put a %s in its place, then run the same command again", e.Path, kind(e.Got), e.Want, e.Want)
}

func kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "regular file"
	case mode.IsDir():
		return "directory"
	case mode&fs.ModeSymlink != 0:
		return "symlink"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}

// Explain adds the attempt, the path and any known remedy to an error of the file system. Nil stays nil.
func Explain(what, path string, err error) error {
	if err == nil {
		return nil
	}
	var kind *KindError
	if errors.As(err, &kind) {
		return err // it names the path and the remedy
	}
	var named *fs.PathError
	if errors.As(err, &named) && named.Path == path {
		err = named.Err // the path is added below
	}
	if hint := remedy(err); hint != "" {
		err = &remediedError{err, hint}
	}
	return errors.Wrapf(err, "%s %s", what, path)
}

type remediedError struct {
	err    error
	remedy string
}

func (e *remediedError) Error() string { return e.err.Error() + ": " + e.remedy }

func (e *remediedError) Unwrap() error { return e.err }

func remedy(err error) string {
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "free some space on this file system, then run the same command again"
	case errors.Is(err, unix.EROFS):
		return "mount this file system writable, then run the same command again"
	case errors.Is(err, unix.EIO):
		return "the disk failed; see the kernel log (dmesg)"
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return "run as root"
	case errors.Is(err, fs.ErrPermission):
		return "the file system refuses this even to root; check with lsattr whether the file is immutable"
	}
	return ""
}

// LockedError reports that another process holds the node's lock.
type LockedError struct {
	Path string
	// PID and Command identify the holder; 0 and empty if it can't be found. Command is only the program and its subcommands.
	PID     int
	Command string
}

func (e *LockedError) Error() string {
	who := "another run of Slipway"
	if e.PID != 0 {
		who = fmt.Sprintf("another run of Slipway (`%s`, pid %d)", e.Command, e.PID)
	}
	return fmt.Sprintf("%s is changing this node (it holds %s): wait until it has finished, then run the same command again", who, e.Path)
}

// ErrNotInPlan answers a question that a dry run doesn't ask, because it would send packets or write to a disk.
var ErrNotInPlan = errors.New("a dry run does not ask this")
