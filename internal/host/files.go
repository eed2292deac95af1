// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"hash/maphash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tempSuffix follows `.NAME` in the name of a file that is being written; eight
// random characters follow it. The leading dot keeps the kubelet from reading
// a half-written manifest.
const (
	tempSuffix    = ".slipway-"
	tempRandomLen = 8
)

// ReadFile implements FileReader. It follows symlinks: a CA that is given may live
// elsewhere.
func (r *Real) ReadFile(path string) ([]byte, error) { return os.ReadFile(r.path(path)) }

// Lstat implements FileReader.
func (r *Real) Lstat(path string) (fs.FileInfo, error) { return os.Lstat(r.path(path)) }

// Stat implements FileReader.
func (r *Real) Stat(path string) (fs.FileInfo, error) { return os.Stat(r.path(path)) }

// ReadDir implements FileReader.
func (r *Real) ReadDir(path string) ([]fs.DirEntry, error) { return os.ReadDir(r.path(path)) }

// WriteSecret implements FileWriter.
func (r *Real) WriteSecret(path string, data []byte) (bool, error) {
	return r.WriteFile(path, data, 0o600)
}

// WriteFile implements FileWriter. It also removes what a run that was killed while
// writing the same file left behind.
func (r *Real) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	return r.write(path, data, mode, nil)
}

// write is WriteFile, and WriteOwned where owner is given.
func (r *Real) write(path string, data []byte, mode fs.FileMode, owner *Owner) (bool, error) {
	path = r.path(path)
	guard := r.guard(path)
	guard.Lock()
	defer guard.Unlock()
	changed, err := writeFile(path, data, mode, owner)
	return changed, explain("write", path, err)
}

// guard returns the lock that writers of path share within this process, so
// that none takes another's temporary file for a leftover.
func (r *Real) guard(path string) *sync.Mutex {
	return &r.writing[maphash.String(guardSeed, filepath.Clean(path))%uint64(len(r.writing))]
}

var guardSeed = maphash.MakeSeed()

func writeFile(path string, data []byte, mode fs.FileMode, owner *Owner) (bool, error) {
	dir, name := filepath.Split(filepath.Clean(path))
	folder, err := openFolder(dir)
	if err != nil {
		return false, err
	}
	defer folder.Close()
	if err := sweep(folder, name); err != nil {
		return false, err
	}
	same, err := holds(folder, name, data, mode, owner)
	if same || err != nil {
		return false, err
	}
	_, err = os.Lstat(path)
	ours := errors.Is(err, fs.ErrNotExist) || made(path)
	temp, err := writeTemp(folder, name, func(f *os.File) error {
		if ours {
			sum := sha256.Sum256(data)
			claim(f, sum[:])
		}
		return fill(f, data, mode, owner)
	})
	if err != nil {
		return false, err
	}
	fd := int(folder.Fd())
	if err := unix.Renameat(fd, temp, fd, name); err != nil {
		return false, errors.Join(err, unix.Unlinkat(fd, temp, 0))
	}
	return true, folder.Sync()
}

// openFolder opens a folder to work in. From then on its descriptor is used,
// so that a link on the way there that changes meanwhile changes nothing.
func openFolder(path string) (*os.File, error) {
	path = filepath.Clean(path)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == nil {
		return os.NewFile(uintptr(fd), path), nil
	}
	var kind *KindError
	if _, infoErr := folderInfo(path); errors.As(infoErr, &kind) {
		return nil, kind
	}
	return nil, &fs.PathError{Op: "open folder", Path: path, Err: err}
}

// folderInfo describes the folder that path is or leads to; anything else, a
// link that leads nowhere included, is a *KindError.
func folderInfo(path string) (fs.FileInfo, error) { return folderInfoBy(os.Lstat, os.Stat, path) }

func folderInfoBy(lstat, stat func(string) (fs.FileInfo, error), path string) (fs.FileInfo, error) {
	own, err := lstat(path)
	if err != nil {
		return nil, err
	}
	info, err := stat(path)
	if own.Mode().Type() == fs.ModeSymlink && errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return nil, &KindError{Path: path, Want: "folder", Got: own.Mode()}
	}
	return info, err
}

// sweep removes the temporary files of earlier writes of name.
func sweep(folder *os.File, name string) error {
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return err
	}
	prefix := "." + name + tempSuffix
	for _, n := range names {
		if !strings.HasPrefix(n, prefix) || len(n) != len(prefix)+tempRandomLen {
			continue
		}
		if err := unix.Unlinkat(int(folder.Fd()), n, 0); err != nil && err != unix.ENOENT {
			return &fs.PathError{Op: "remove leftover", Path: n, Err: err}
		}
	}
	return nil
}

// holds reports whether name is a regular file with these bytes, this mode and,
// where one is given, this owner. Anything but a regular file is an error.
func holds(folder *os.File, name string, data []byte, mode fs.FileMode, owner *Owner) (bool, error) {
	path := filepath.Join(folder.Name(), name)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !info.Mode().IsRegular() {
		return false, &KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	have, _ := OwnerIn(info)
	if info.Mode() != mode || info.Size() != int64(len(data)) || owner != nil && have != *owner {
		return false, nil
	}
	// NONBLOCK, because the file may have become a FIFO since.
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := unix.Openat(int(folder.Fd()), name, flags, 0)
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	got := make([]byte, len(data))
	if _, err := f.ReadAt(got, 0); err != nil && len(data) > 0 {
		return false, err
	}
	return bytes.Equal(got, data), nil
}

// writeTemp makes a new file next to name, on disk and complete, and returns
// its name. Nothing is left where it fails.
func writeTemp(folder *os.File, name string, fill func(*os.File) error) (string, error) {
	temp := "." + name + tempSuffix + rand.Text()[:tempRandomLen]
	dir := int(folder.Fd())
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, temp, flags, 0o600)
	if err != nil {
		return "", err
	}
	if err := fill(os.NewFile(uintptr(fd), filepath.Join(folder.Name(), name))); err != nil {
		return "", errors.Join(err, unix.Unlinkat(dir, temp, 0))
	}
	return temp, nil
}

// fill gives f its owner and its mode before its content.
func fill(f *os.File, data []byte, mode fs.FileMode, owner *Owner) error {
	var err error
	if owner != nil {
		err = f.Chown(owner.UID, owner.GID)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Remove implements FileWriter.
func (r *Real) Remove(path string) error {
	path = r.path(path)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncFolder(filepath.Dir(path))
	}
	return explain("remove", path, err)
}
