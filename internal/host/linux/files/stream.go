// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"crypto/sha256"
	stderrors "errors"
	"io"
	"os"
	"path/filepath"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

func (r *Root) WriteStream(path string, fill func(io.Writer) error) error {
	path = r.path(path)
	guard := r.guard(path)
	guard.Lock()
	defer guard.Unlock()
	return host.Explain("write", path, writeStream(path, fill))
}

func writeStream(path string, content func(io.Writer) error) error {
	parent, name := filepath.Split(filepath.Clean(path))
	dir, err := openDir(parent)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := sweep(dir, name); err != nil {
		return err
	}
	if _, err := replaceable(path); err != nil {
		return err
	}
	_, err = replace(dir, name, func(f *os.File, ours bool) error {
		return stderrors.Join(stream(f, content, ours), f.Close())
	})
	return err
}

func stream(f *os.File, content func(io.Writer) error, ours bool) error {
	if err := f.Chmod(0o600); err != nil { // the umask may have narrowed it
		return err
	}
	sum := sha256.New()
	if err := content(io.MultiWriter(&steadyWriter{file: f}, sum)); err != nil {
		return err
	}
	if ours {
		claim(f, sum.Sum(nil))
	}
	return f.Sync()
}

// steadyChunk is how much of a large file the kernel keeps in memory before it starts to write it to the disk.
const steadyChunk = 8 << 20

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
