// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"path"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// MissingProfileFiles are the files of profiles that the API server's flags name and this host lacks. Files that exist stay; files
// with other content are named, if the API server restarts.
func MissingProfileFiles(env *step.Env, restarts bool) (files []ownership.File, err error) {
	for _, f := range env.Config.ProfileFiles() {
		file := ownership.File{Path: f.Path, Data: f.Data, Mode: 0o600}
		have, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return nil, err
		}
		if have == nil {
			files = append(files, file)
			continue
		}
		if restarts && !bytes.Equal(have, f.Data) {
			file.SayKept(env.UI, have, "to use the profile's, move it away before this command")
		}
	}
	return files, nil
}

// EnsureProfileFiles writes missing files before an API server restarts, and gives them to its user.
func EnsureProfileFiles(env *step.Env, missing []ownership.File) error {
	if err := WriteProfileFiles(env, missing); err != nil {
		return err
	}
	return env.Accounts().Give(manifests.APIServerName)
}

// WriteProfileFiles writes the files of profiles that the API server is about to read, and makes their directories and that of its
// audit log.
func WriteProfileFiles(env *step.Env, files []ownership.File) error {
	if dir := env.Config.AuditLogDir(); dir != "" {
		if err := env.Host.EnsureDir(dir, 0o700); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := env.Host.EnsureDir(path.Dir(f.Path), 0o755); err != nil {
			return err
		}
	}
	return env.Keeper().Replace(files)
}
