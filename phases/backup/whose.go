// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

const KubeletFlagsFile = "kubeadm-flags.env"

// Owner says whether a file is as Slipway made it.
type Owner int

const (
	UnknownWhose Owner = iota
	AsMade             // nobody has edited it
	AsEdited           // somebody has edited or replaced it
)

// Whose decides by the host's notes of Slipway's files, and by the records of upgrades, which also overwrite others' files. Files
// from kubeadm, from an earlier release's upgrade, or put back by a rollback are of unknown origin.
func Whose(env *step.Env, path string) (Owner, error) {
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return AsMade, err
	}
	backup, rolledBack, err := Here(env)
	if err != nil {
		return UnknownWhose, err
	}
	if kept, err := keptIn(env, backup, path); err != nil || rolledBack && bytes.Equal(kept, data) {
		return UnknownWhose, err
	} else if bytes.Equal(kept, data) {
		backup = nil // that upgrade hasn't replaced it yet
	}
	if env.Host.Unchanged(path) {
		return AsMade, nil
	}
	if backup == nil {
		// Some editors replace a file instead of changing it, and the new file has no note.
		sibling := filepath.Join(env.Config.Paths.Kubelet, KubeletFlagsFile)
		if env.Host.Made(path) || filepath.Dir(path) == env.Config.Paths.Kubelet && env.Host.Made(sibling) {
			return AsEdited, nil
		}
		return UnknownWhose, nil
	}
	switch same, recorded := backup.Wrote(filepath.Base(path), data); {
	case same:
		return AsMade, nil
	case recorded || env.Host.Made(path) && backup.To != "": // otherwise kubeadm has overwritten it
		return AsEdited, nil
	}
	return UnknownWhose, nil
}

// keptIn returns the file that an upgrade found at a path; nil if it kept none.
func keptIn(env *step.Env, backup *upgrading.Backup, path string) ([]byte, error) {
	if backup == nil {
		return nil, nil
	}
	name := filepath.Base(path)
	kept := backup.Manifests[strings.TrimSuffix(name, ".yaml")]
	if filepath.Dir(path) == env.Config.Paths.Kubelet {
		kept = backup.Kubelet[name]
	}
	if kept == "" {
		return nil, nil
	}
	return env.Host.ReadFile(kept)
}

// Here returns the backup of this host's last upgrade, nil if there was none, and whether there was a rollback.
func Here(env *step.Env) (backup *upgrading.Backup, rolledBack bool, err error) {
	progress, err := upgrading.ReadProgress(env.Host, node.BackupRoot(env))
	if err != nil {
		return nil, false, err
	}
	backup, err = upgrading.LastBackup(env.Host, node.BackupRoot(env), progress)
	return backup, !progress.Began.IsZero(), err
}
