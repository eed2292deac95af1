// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	stderrors "errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// mostLinks is how many symlinks are followed on the way to a directory: the kernel's limit.
const mostLinks = 40

var errOthersLink = errors.New("it is a symlink that a user other than root has made, so it is not followed: remove it, then run the same command again")

// openTrusted opens a directory by its absolute path. It follows a symlink on the way if it's root's or this user's; another
// user's may lead anywhere.
func openTrusted(path string) (*os.File, error) {
	at, err := os.OpenFile("/", unix.O_PATH, 0)
	links := 0
	for names := strings.Split(path, "/"); err == nil && len(names) > 0; {
		var target []string
		if at, target, err = follow(at, names[0]); target != nil {
			links++
		}
		if links > mostLinks {
			err = stderrors.Join(unix.ELOOP, at.Close())
		}
		names = append(target, names[1:]...)
	}
	if errors.Is(err, unix.ENOTDIR) {
		if _, infoErr := dirInfo(path); infoErr != nil {
			err = infoErr
		}
	}
	if err != nil {
		return nil, err
	}
	defer at.Close()
	fd, err := unix.Openat(int(at.Fd()), ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// follow opens a directory's entry and closes the directory. If the entry is a symlink, it returns the directory, still open, and
// the parts of the link's target.
func follow(at *os.File, name string) (next *os.File, target []string, err error) {
	if name == "" {
		return at, nil, nil
	}
	next, err = openAt(at, name, unix.O_PATH)
	if err != nil {
		at.Close()
		return nil, nil, err
	}
	info, err := next.Stat()
	if err == nil && info.Mode().Type() != fs.ModeSymlink {
		if !info.IsDir() {
			err = unix.ENOTDIR
		}
		at.Close()
	} else {
		if err == nil {
			target, err = trustedTarget(next, info)
		}
		next.Close()
		next = at
	}
	if err != nil {
		next.Close()
		return nil, nil, err
	}
	return next, target, nil
}

// trustedTarget splits a trusted symlink's target into names.
func trustedTarget(link *os.File, info fs.FileInfo) ([]string, error) {
	if !trustedLink(info) {
		return nil, errors.Wrap(errOthersLink, link.Name())
	}
	var text [unix.PathMax]byte
	n, err := unix.Readlinkat(int(link.Fd()), "", text[:])
	if err != nil {
		return nil, err
	}
	target := string(text[:n])
	names := strings.Split(target, "/")
	if filepath.IsAbs(target) {
		names[0] = "/"
	}
	return names, nil
}

// trustedLink reports whether root or this user made a symlink.
func trustedLink(info fs.FileInfo) bool {
	owner, known := host.OwnerIn(info)
	return known && (owner.UID == 0 || owner.UID == os.Geteuid())
}
