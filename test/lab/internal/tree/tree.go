// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package tree copies a containerd root in no time.
package tree

import (
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/pkg/errors"
)

// Link copies a containerd root: it copies databases and hard-links everything else, as containerd never changes a blob or a
// snapshot that others build on. To another file system, it copies everything.
func Link(from, to string) error {
	err := link(from, to)
	if errors.Is(err, syscall.EXDEV) {
		var said []byte
		said, err = exec.Command("cp", "--archive", from+"/.", to).CombinedOutput()
		err = errors.Wrapf(err, "%s", said)
	}
	return errors.Wrap(err, "cannot copy the images")
}

func link(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case entry.IsDir():
			return copyDir(entry, target)
		case filepath.Ext(path) == ".db":
			return CopyFile(path, target)
		}
		return os.Link(path, target)
	})
}

// copyDir makes a directory with the mode and owner of another.
func copyDir(entry fs.DirEntry, target string) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok {
		if err := os.Chown(target, int(owner.Uid), int(owner.Gid)); err != nil {
			return err
		}
	}
	return os.Chmod(target, info.Mode())
}

// CopyFile copies a regular file's content and mode.
func CopyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode())
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Chmod(info.Mode()); err != nil {
		return err
	}
	return out.Close()
}
