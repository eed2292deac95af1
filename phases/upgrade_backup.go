// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/ownership"
)

// backupTime is the form of the time in a backup's name, as kubeadm has it.
const backupTime = "2006-01-02-15-04-05"

// backupRoot is where upgrades keep what they replace.
func backupRoot(env *Env) string { return filepath.Join(env.Config.Paths.Kubernetes, "tmp") }

// backUpManifests keeps the manifests that are about to be replaced.
func backUpManifests(env *Env, components []componentUpgrade) error {
	dir := filepath.Join(backupRoot(env), "kubeadm-backup-manifests-"+env.Host.Now().UTC().Format(backupTime))
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	env.UI.Printf("Keeping the manifests of before in %s", dir)
	for _, c := range components {
		if c.before == nil {
			continue
		}
		if _, err := (ownership.File{Path: filepath.Join(dir, c.name+".yaml"), Data: c.before, Mode: 0o600}).Write(env.Host); err != nil {
			return err
		}
	}
	return nil
}
