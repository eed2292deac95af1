// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	stderrors "errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// WriteFile also removes the leftovers of a run that was killed while it wrote the same file.
func (r *Root) WriteFile(path string, data []byte, mode fs.FileMode) (bool, error) {
	return r.write(path, data, newFile{mode: mode})
}

func (r *Root) WriteSecret(path string, data []byte) (bool, error) {
	return r.WriteFile(path, data, 0o600)
}

func (r *Root) WriteOwned(path string, data []byte, mode fs.FileMode, owner host.Owner) (bool, error) {
	return r.write(path, data, newFile{mode: mode, owner: &owner})
}

func (r *Root) write(path string, data []byte, f newFile) (changed bool, err error) {
	f.fill = func(w io.Writer) error { _, err := w.Write(data); return err }
	err = r.in("write", path, func(dir *os.File, name string) error {
		same, err := holds(dir, name, data, f)
		if err == nil && !same {
			changed, err = replace(dir, name, f)
		}
		return err
	})
	return changed, err
}

func (r *Root) WriteStream(path string, fill func(io.Writer) error) error {
	return r.in("write", path, func(dir *os.File, name string) error {
		_, err := replaceable(filepath.Join(dir.Name(), name))
		if err == nil {
			_, err = replace(dir, name, newFile{mode: 0o600, fill: fill})
		}
		return err
	})
}

// in calls do with path's directory, free of leftovers of earlier writes of path; no other writer here works on path meanwhile.
func (r *Root) in(what, path string, do func(dir *os.File, name string) error) error {
	path = filepath.Clean(r.path(path))
	guard := r.guard(path)
	guard.Lock()
	defer guard.Unlock()
	dir, err := openDir(filepath.Dir(path))
	if err == nil {
		defer dir.Close()
		err = sweep(dir, filepath.Base(path))
	}
	if err == nil {
		err = do(dir, filepath.Base(path))
	}
	return host.Explain(what, path, err)
}

type newFile struct {
	mode  fs.FileMode
	owner *host.Owner             // nil: this process's user
	sum   *[sha256.Size]byte      // what the content must have; nil: any
	fill  func(w io.Writer) error // writes the content
}

// replace puts a new file in the place of name.
func replace(dir *os.File, name string, f newFile) (changed bool, err error) {
	temp, err := writeTemp(dir, name, f)
	if err != nil {
		return false, err
	}
	fd := int(dir.Fd())
	if err := unix.Renameat(fd, temp, fd, name); err != nil {
		return false, stderrors.Join(err, unix.Unlinkat(fd, temp, 0))
	}
	return true, dir.Sync()
}

// writeTemp creates a file next to name, complete and on disk, and returns its name. A failure leaves nothing behind.
func writeTemp(dir *os.File, name string, f newFile) (string, error) {
	path, temp, parent := filepath.Join(dir.Name(), name), host.TempName(name), int(dir.Fd())
	flags := unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(parent, temp, flags, 0o600)
	if err != nil {
		return "", err
	}
	_, err = os.Lstat(path)
	ours := errors.Is(err, fs.ErrNotExist) || made(path)
	out := os.NewFile(uintptr(fd), path)
	if err := stderrors.Join(f.write(out, ours), out.Close()); err != nil {
		return "", stderrors.Join(err, unix.Unlinkat(parent, temp, 0))
	}
	return temp, nil
}

// write sets the owner and mode before it writes the content. If ours is set, it notes that Slipway made the file.
func (f newFile) write(out *os.File, ours bool) error {
	if f.owner != nil {
		if err := out.Chown(f.owner.UID, f.owner.GID); err != nil {
			return err
		}
	}
	if err := out.Chmod(f.mode); err != nil { // the umask may have narrowed it
		return err
	}
	hash := sha256.New()
	if err := f.fill(io.MultiWriter(&steadyWriter{file: out}, hash)); err != nil {
		return err
	}
	sum := hash.Sum(nil)
	if f.sum != nil && [sha256.Size]byte(sum) != *f.sum {
		return errors.Errorf("the content is not the one with SHA-256 %s", hex.EncodeToString(f.sum[:]))
	}
	if ours {
		claim(out, sum)
	}
	return out.Sync()
}

// holds reports whether name is a regular file with these bytes, f's mode, and f's owner unless nil. Other kinds of files are errors.
func holds(dir *os.File, name string, data []byte, f newFile) (bool, error) {
	info, err := replaceable(filepath.Join(dir.Name(), name))
	if info == nil || err != nil {
		return false, err
	}
	have, _ := host.OwnerIn(info)
	if info.Mode() != f.mode || info.Size() != int64(len(data)) || f.owner != nil && have != *f.owner {
		return false, nil
	}
	in, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK) // it may have become a FIFO by now
	if err != nil {
		return false, err
	}
	defer in.Close()
	got := make([]byte, len(data))
	if _, err := in.ReadAt(got, 0); err != nil && len(data) > 0 {
		return false, err
	}
	return bytes.Equal(got, data), nil
}

// replaceable describes the regular file at path; nil if there's nothing. Anything else is a *KindError.
func replaceable(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, &host.KindError{Path: path, Want: "regular file", Got: info.Mode()}
	}
	return info, nil
}

func (r *Root) Remove(path string) error {
	path = r.path(path)
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	return host.Explain("remove", path, err)
}

// steadyChunk is how much of a large file the kernel keeps in memory before it starts to write it to the disk.
const steadyChunk = 1 << 20

// steadyWriter has its data written to the disk all along: if the kernel collected it until the final fsync, the disk would be
// busy for so long that an etcd on the same disk missed its heartbeats.
type steadyWriter struct {
	file             *os.File
	written, started int64
}

func (w *steadyWriter) Write(p []byte) (int, error) {
	n, err := w.file.Write(p)
	w.written += int64(n)
	for err == nil && w.written-w.started >= steadyChunk {
		err = w.start()
	}
	return n, err
}

// start waits until the disk has the chunk before the last, and starts the last.
func (w *steadyWriter) start() error {
	const wait = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	fd := int(w.file.Fd())
	var err error
	if w.started > 0 {
		err = unix.SyncFileRange(fd, w.started-steadyChunk, steadyChunk, wait)
	}
	if err == nil {
		err = unix.SyncFileRange(fd, w.started, steadyChunk, unix.SYNC_FILE_RANGE_WRITE)
	}
	w.started += steadyChunk
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESPIPE) {
		return nil // the final fsync is enough
	}
	return errors.Wrap(err, "write to the disk")
}
