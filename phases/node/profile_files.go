// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"path"

	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/phases/step"
)

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
