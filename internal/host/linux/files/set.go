// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
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

func (r *Root) HasFile(f host.SetFile) (bool, error) {
	path := r.path(f.Path)
	info, err := replaceable(path)
	if info == nil || err != nil {
		return false, host.Explain("read", path, err)
	}
	if info.Mode() != f.Mode || info.Size() != f.Size {
		return false, nil
	}
	same, err := hashes(path, f.SHA256)
	return same, host.Explain("read", path, err)
}

func hashes(path string, want [sha256.Size]byte) (bool, error) {
	in, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false, err
	}
	defer in.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, in)
	return [sha256.Size]byte(sum.Sum(nil)) == want, err
}

// WriteSet stages each file in its own directory, as WriteFile does, so the last step is a rename.
func (r *Root) WriteSet(files []host.SetFile, fill func(put func(path string, content io.Reader) error) error) (err error) {
	s := &fileSet{staged: map[string]stagedFile{}, files: map[string]host.SetFile{}}
	defer func() { err = stderrors.Join(err, s.drop()) }()
	for _, f := range files {
		f.Path = r.path(f.Path)
		if err := s.open(f); err != nil {
			return host.Explain("write", f.Path, err)
		}
	}
	put := func(path string, content io.Reader) error {
		path = r.path(path)
		return host.Explain("write", path, s.stage(path, content))
	}
	if err := fill(put); err != nil {
		return err
	}
	return s.place(files, r.path)
}

// fileSet holds files being staged.
type fileSet struct {
	files  map[string]host.SetFile
	staged map[string]stagedFile // by target path
	dirs   map[string]*os.File
}

type stagedFile struct {
	dir  *os.File
	name string
}

// open prepares a file's directory, without an earlier run's leftovers.
func (s *fileSet) open(f host.SetFile) error {
	if _, err := replaceable(f.Path); err != nil {
		return err
	}
	s.files[f.Path] = f
	parent := filepath.Dir(f.Path)
	if s.dirs[parent] != nil {
		return nil
	}
	dir, err := openDir(parent)
	if err != nil {
		return err
	}
	if s.dirs == nil {
		s.dirs = map[string]*os.File{}
	}
	s.dirs[parent] = dir
	return sweepAll(dir)
}

// sweepAll removes earlier runs' unfinished files from a directory.
func sweepAll(dir *os.File) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, found := host.LeftoverOf(name); !found {
			continue
		}
		if err := unix.Unlinkat(int(dir.Fd()), name, 0); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EISDIR) {
			return &fs.PathError{Op: "remove leftover", Path: name, Err: err}
		}
	}
	return nil
}

func (s *fileSet) stage(path string, content io.Reader) error {
	f, ok := s.files[path]
	if !ok {
		return errors.New("is not part of the set")
	}
	if _, ok := s.staged[path]; ok {
		return errors.New("was put already")
	}
	dir, name := s.dirs[filepath.Dir(path)], filepath.Base(path)
	_, err := os.Lstat(path)
	ours := errors.Is(err, fs.ErrNotExist) || made(path)
	temp, err := writeTemp(dir, name, func(out *os.File) error {
		return stderrors.Join(fillMember(out, f, content, ours), out.Close())
	})
	if err != nil {
		return err
	}
	s.staged[path] = stagedFile{dir, temp}
	return nil
}

// fillMember writes the content, which must be as announced.
func fillMember(out *os.File, f host.SetFile, content io.Reader, ours bool) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(&steadyWriter{file: out}, sum), io.LimitReader(content, f.Size+1))
	if err != nil {
		return err
	}
	if n != f.Size || [sha256.Size]byte(sum.Sum(nil)) != f.SHA256 {
		return errors.Errorf("the content is not the one with SHA-256 %s", hex.EncodeToString(f.SHA256[:]))
	}
	if ours {
		claim(out, f.SHA256[:])
	}
	if err := out.Chmod(f.Mode); err != nil {
		return err
	}
	return out.Sync()
}

// place renames the staged files, in order.
func (s *fileSet) place(files []host.SetFile, real func(string) string) error {
	for _, f := range files {
		if _, ok := s.staged[real(f.Path)]; !ok {
			return errors.Errorf("write %s: its content is missing", f.Path)
		}
	}
	for _, f := range files {
		path := real(f.Path)
		staged := s.staged[path]
		fd := int(staged.dir.Fd())
		if err := unix.Renameat(fd, staged.name, fd, filepath.Base(path)); err != nil {
			return host.Explain("write", path, err)
		}
		delete(s.staged, path)
	}
	for _, dir := range s.dirs {
		if err := dir.Sync(); err != nil {
			return host.Explain("write to", dir.Name(), err)
		}
	}
	return nil
}

// drop removes files that were staged and not placed.
func (s *fileSet) drop() error {
	var failed []error
	for _, f := range s.staged {
		failed = append(failed, unix.Unlinkat(int(f.dir.Fd()), f.name, 0))
	}
	for _, dir := range s.dirs {
		_ = dir.Close() // only read from
	}
	return stderrors.Join(failed...)
}
