// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"io/fs"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/phases/step"
)

func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// IgnoreForbidden is for plans: root will see more than this user.
func IgnoreForbidden(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

// PreparedPath records a host's preparation.
const PreparedPath = "/var/lib/slipway/host.json"

// BackupRoot is where upgrades back up the files they replace.
func BackupRoot(env *step.Env) string { return filepath.Join(env.Config.Paths.Kubernetes, "tmp") }

// Exists reports whether path exists; the empty path doesn't.
func Exists(env *step.Env, path string) (bool, error) {
	if path == "" {
		return false, nil
	}
	_, err := env.Host.Lstat(path)
	return err == nil, IgnoreMissing(err)
}
