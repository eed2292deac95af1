// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
)

// file is what a path shall hold.
type file struct {
	path string
	data []byte
	mode fs.FileMode
	// secret keeps the content, whose mode is 0600, out of plans.
	secret bool
}

func (f file) write(h host.Host) (changed bool, err error) {
	if f.secret {
		return h.WriteSecret(f.path, f.data)
	}
	return h.WriteFile(f.path, f.data, f.mode)
}

// replaceFiles writes those of files that the host does not hold like this, and
// says what goes with what was there.
func replaceFiles(env *Env, files []file) error {
	for _, f := range files {
		have, err := host.ReadIfExists(env.Host, f.path)
		if err != nil {
			return err
		}
		changed, err := f.write(env.Host)
		switch {
		case err != nil:
			return err
		case changed && have != nil && !f.secret && !bytes.Equal(have, f.data):
			env.UI.Printf("Writing %s over another: %s", f.path, lineDifference(have, f.data))
		case changed:
			env.UI.Printf("Writing %s", f.path)
		}
	}
	return nil
}

// differing returns those of files that the host does not hold like this.
func differing(h host.Host, files []file) ([]file, error) {
	var out []file
	for _, f := range files {
		data, err := host.ReadIfExists(h, f.path)
		if err != nil {
			return nil, err
		}
		info, err := h.Lstat(f.path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if info == nil || info.Mode() != f.mode || !bytes.Equal(data, f.data) {
			out = append(out, f)
		}
	}
	return out, nil
}

// readPatches reads the user's folder of patches, if there is one.
func readPatches(env *Env) (config.PatchSet, error) {
	dir := env.Config.PatchesDir
	if dir == "" {
		return config.PatchSet{}, nil
	}
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return config.PatchSet{}, errors.Wrap(err, "patches folder")
	}
	var files []config.PatchFile
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := env.Host.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return config.PatchSet{}, err
		}
		files = append(files, config.PatchFile{Name: e.Name(), Data: data})
	}
	return config.ParsePatches(files)
}
