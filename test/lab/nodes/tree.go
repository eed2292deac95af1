// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// copyTree copies a file, a directory's contents or a symbolic link, with its mode.
func copyTree(source *os.Root, from string, target *os.Root, to string) error {
	info, err := source.Lstat(from)
	if err != nil {
		return err
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		return copyLink(source, from, target, to)
	case info.IsDir():
		return copyFiles(source, from, target, to)
	case info.Mode().IsRegular():
		return copyRegular(source, from, target, to, info.Mode().Perm())
	}
	return nil // sockets and devices mean nothing elsewhere
}

func copyLink(source *os.Root, from string, target *os.Root, to string) error {
	link, err := source.Readlink(from)
	if err != nil {
		return err
	}
	if err := target.Remove(to); err != nil && !os.IsNotExist(err) {
		return err
	}
	return target.Symlink(link, to)
}

func copyFiles(source *os.Root, from string, target *os.Root, to string) error {
	if err := target.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := fs.ReadDir(source.FS(), from)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := copyTree(source, filepath.Join(from, entry.Name()), target, filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyRegular(source *os.Root, from string, target *os.Root, to string, mode fs.FileMode) error {
	in, err := source.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	// A new file, as the old one may be a running program.
	if err := target.Remove(to); err != nil && !os.IsNotExist(err) {
		return err
	}
	out, err := target.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	if err := out.Chmod(mode); err != nil {
		return err
	}
	return out.Close()
}
