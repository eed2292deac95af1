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
	s := &fileSet{map[string]host.SetFile{}, map[string]string{}, map[string]*os.File{}}
	defer func() { err = stderrors.Join(err, s.drop()) }()
	for _, f := range files {
		path := r.path(f.Path)
		s.files[path] = f
		if err := s.open(path); err != nil {
			return host.Explain("write", path, err)
		}
	}
	put := func(path string, content io.Reader) error {
		path = r.path(path)
		return host.Explain("write", path, s.stage(path, content))
	}
	if err := fill(put); err != nil {
		return err
	}
	for _, f := range files {
		if s.staged[r.path(f.Path)] == "" {
			return errors.Errorf("write %s: its content is missing", f.Path)
		}
	}
	for _, f := range files {
		if err := s.place(r.path(f.Path)); err != nil {
			return host.Explain("write", r.path(f.Path), err)
		}
	}
	for _, dir := range s.dirs {
		if err := dir.Sync(); err != nil {
			return host.Explain("write to", dir.Name(), err)
		}
	}
	return nil
}

// fileSet holds files being staged.
type fileSet struct {
	files  map[string]host.SetFile // by path
	staged map[string]string       // temporary names, by path
	dirs   map[string]*os.File
}

// open prepares a file's directory, without earlier runs' leftovers.
func (s *fileSet) open(path string) error {
	if _, err := replaceable(path); err != nil {
		return err
	}
	parent := filepath.Dir(path)
	if s.dirs[parent] != nil {
		return nil
	}
	dir, err := openDir(parent)
	if err != nil {
		return err
	}
	s.dirs[parent] = dir
	return sweep(dir, "")
}

func (s *fileSet) stage(path string, content io.Reader) error {
	f, ok := s.files[path]
	switch {
	case !ok:
		return errors.New("is not part of the set")
	case s.staged[path] != "":
		return errors.New("was put already")
	}
	temp, err := writeTemp(s.dirs[filepath.Dir(path)], filepath.Base(path), newFile{
		mode: f.Mode, sum: &f.SHA256, fill: func(w io.Writer) error {
			_, err := io.Copy(w, io.LimitReader(content, f.Size+1)) // a longer content has another hash
			return err
		}})
	if err == nil {
		s.staged[path] = temp
	}
	return err
}

func (s *fileSet) place(path string) error {
	fd := int(s.dirs[filepath.Dir(path)].Fd())
	err := unix.Renameat(fd, s.staged[path], fd, filepath.Base(path))
	if err == nil {
		delete(s.staged, path)
	}
	return err
}

// drop removes files that were staged and not placed.
func (s *fileSet) drop() error {
	var failed []error
	for path, temp := range s.staged {
		failed = append(failed, unix.Unlinkat(int(s.dirs[filepath.Dir(path)].Fd()), temp, 0))
	}
	for _, dir := range s.dirs {
		_ = dir.Close() // only read from
	}
	return stderrors.Join(failed...)
}
