// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"io/fs"
	"path"

	"github.com/pkg/errors"
)

type files interface {
	ReadDir(dir string) ([]fs.DirEntry, error)
	ReadFile(file string) ([]byte, error)
}

// ReadPatches reads a directory's patches; there are none if dir is empty.
func ReadPatches(host files, dir string) (PatchSet, error) {
	if dir == "" {
		return PatchSet{}, nil
	}
	entries, err := host.ReadDir(dir)
	if err != nil {
		return PatchSet{}, errors.Wrap(err, "patches directory")
	}
	var list []PatchFile
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		data, err := host.ReadFile(path.Join(dir, entry.Name()))
		if err != nil {
			return PatchSet{}, err
		}
		list = append(list, PatchFile{Name: entry.Name(), Data: data})
	}
	return ParsePatches(list)
}
