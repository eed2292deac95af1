// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"
)

// unfinished is the prefix of directories still being filled.
const unfinished = ".unfinished-"

// A store keeps the lab's parts, each in a directory named after all its inputs. A directory with its final name is complete.
type store struct{ dir string }

// stamp names a thing by its kind and the hash of all its inputs.
func stamp(kind string, inputs ...string) string {
	h := sha256.New()
	for _, input := range inputs {
		fmt.Fprintf(h, "%d:%s", len(input), input)
	}
	return kind + "-" + hex.EncodeToString(h.Sum(nil))[:16]
}

// kindOf returns the kind in a stamp's name.
func kindOf(name string) string {
	return name[:max(strings.LastIndex(name, "-"), 0)]
}

func (s store) has(name string) bool {
	_, err := os.Stat(s.path(name))
	return err == nil
}

func (s store) path(name string) string { return filepath.Join(s.dir, name) }

// ensure makes the thing if it's missing. An interrupted make leaves nothing under the final name.
func (s store) ensure(name string, make func(dir string) error) error {
	if s.has(name) {
		now := time.Now()
		return errors.Wrap(os.Chtimes(s.path(name), now, now), "cannot mark as used")
	}
	temporary, err := os.MkdirTemp(s.dir, unfinished)
	if err != nil {
		return errors.Wrap(err, "cannot make a directory to build in")
	}
	defer os.RemoveAll(temporary)
	if err := os.Chmod(temporary, 0o755); err != nil {
		return errors.Wrap(err, "cannot open the directory to build in")
	}
	if err := make(temporary); err != nil {
		return err
	}
	return errors.Wrap(os.Rename(temporary, s.path(name)), "cannot keep what was built")
}

// sweep removes leftovers of interrupted runs, locks that nobody holds, and things that have been unused for a while, if their
// kind is in keep but they aren't. Nobody may use the store meanwhile.
func (s store) sweep(keep map[string]bool, unused time.Duration) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return errors.Wrap(err, "cannot list what was built")
	}
	kinds := map[string]bool{}
	for name := range keep {
		kinds[kindOf(name)] = true
	}
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil || keep[entry.Name()] {
			continue
		}
		old := kinds[kindOf(entry.Name())] && time.Since(info.ModTime()) > unused
		if !old && !strings.HasPrefix(entry.Name(), unfinished) && !strings.HasPrefix(entry.Name(), lockOf) {
			continue
		}
		if err := os.RemoveAll(s.path(entry.Name())); err != nil {
			return errors.Wrap(err, "cannot remove what is no longer used")
		}
	}
	return nil
}

// treeHash hashes the names, types and contents of a tree's matching files.
func treeHash(tree fs.FS, match func(name string) bool) (string, error) {
	h := sha256.New()
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !match(path.Base(name)) {
			return err
		}
		f, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		fmt.Fprintf(h, "%s %o\n", name, entry.Type())
		_, err = io.Copy(h, f)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), errors.Wrap(err, "cannot hash a directory")
}
