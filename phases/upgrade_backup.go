// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"path/filepath"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
)

// backupTime is the form of the time in a backup's name, as kubeadm has it.
const backupTime = "2006-01-02-15-04-05"

// backupRoot is where upgrades keep what they replace.
func backupRoot(env *Env) string { return filepath.Join(env.Config.Paths.Kubernetes, "tmp") }

// backUpKubelet keeps the kubelet's files that are about to be replaced.
func backUpKubelet(env *Env, files []ownership.File) error {
	dir := filepath.Join(backupRoot(env), "kubeadm-kubelet-config-"+env.Host.Now().UTC().Format(backupTime))
	for _, f := range files {
		data, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return err
		}
		if data == nil {
			continue
		}
		if err := backUp(env, dir, filepath.Base(f.Path), data); err != nil {
			return err
		}
	}
	return nil
}

func backUp(env *Env, dir, name string, data []byte) error {
	if err := env.Host.EnsureDir(dir, 0o700); err != nil {
		return err
	}
	_, err := ownership.File{Path: filepath.Join(dir, name), Data: data, Mode: 0o600}.Write(env.Host)
	return err
}

// backUpManifests keeps the manifests that are about to be replaced.
func backUpManifests(env *Env, components []componentUpgrade) error {
	dir := filepath.Join(backupRoot(env), "kubeadm-backup-manifests-"+env.Host.Now().UTC().Format(backupTime))
	env.UI.Printf("Keeping the previous manifests in %s", dir)
	for _, c := range components {
		if c.before == nil {
			continue
		}
		if err := backUp(env, dir, c.name+".yaml", c.before); err != nil {
			return err
		}
	}
	return nil
}
