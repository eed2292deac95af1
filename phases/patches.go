// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
)

// readPatches reads the user's directory of patches, if there is one.
func readPatches(env *Env) (config.PatchSet, error) {
	dir := env.Config.PatchesDir
	if dir == "" {
		return config.PatchSet{}, nil
	}
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return config.PatchSet{}, errors.Wrap(err, "patches directory")
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
