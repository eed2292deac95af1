// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"debug/elf"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"
)

// libraries finds dynamically linked programs in a tree, with their loader and all shared libraries, and returns paths in an
// image mapped to files. It does ldd's job without running anything.
func libraries(root tree, libraryDir string, programs []string) (map[string]string, error) {
	found := map[string]string{}
	var todo []string
	for _, path := range programs {
		found[path] = root.find(path)
		todo = append(todo, found[path])
	}
	for ; len(todo) > 0; todo = todo[1:] {
		loader, needed, err := linkage(todo[0])
		if err != nil {
			return nil, err
		}
		if loader != "" {
			// The loader's usual path is a link; its file lies with the libraries.
			found[strings.TrimPrefix(loader, "/")] = root.find(filepath.Join(libraryDir, filepath.Base(loader)))
		}
		for _, name := range needed {
			inImage := filepath.Join(libraryDir, name)
			if _, known := found[inImage]; known {
				continue
			}
			found[inImage] = root.find(inImage)
			todo = append(todo, found[inImage])
		}
	}
	return found, nil
}

// linkage reads a program's loader (libraries have none) and its direct dependencies.
func linkage(path string) (loader string, needed []string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return "", nil, errors.Wrapf(err, "cannot read %s", path)
	}
	defer f.Close()
	if section := f.Section(".interp"); section != nil {
		data, err := section.Data()
		if err != nil {
			return "", nil, errors.Wrapf(err, "cannot read the loader of %s", path)
		}
		loader = strings.TrimRight(string(data), "\x00")
	}
	needed, err = f.ImportedLibraries()
	return loader, needed, errors.Wrapf(err, "cannot read the libraries of %s", path)
}
