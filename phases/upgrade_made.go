// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"path/filepath"
	"strings"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/upgrading"
)

const kubeletFlagsFile = "kubeadm-flags.env"

// whoseFile says whether a file is as Slipway made it.
type whoseFile int

const (
	unknownWhose whoseFile = iota
	asMade                 // nobody has edited it
	asEdited               // somebody has edited or replaced it
)

// whose goes by the host's notes of the files that Slipway made there, and by the records of upgrades, which also write over files
// that others made. Nothing is known of what kubeadm wrote, or an upgrade of an earlier release, nor of what a rollback has put
// back.
func whose(env *Env, path string) (whoseFile, error) {
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return asMade, err
	}
	backup, rolledBack, err := backupHere(env)
	if err != nil {
		return unknownWhose, err
	}
	if kept, err := keptIn(env, backup, path); err != nil || rolledBack && bytes.Equal(kept, data) {
		return unknownWhose, err
	} else if bytes.Equal(kept, data) {
		backup = nil // that upgrade hasn't replaced it yet
	}
	if env.Host.Unchanged(path) {
		return asMade, nil
	}
	if backup == nil {
		// Some editors put a new file in the place of the one that they change, and that has no note.
		sibling := filepath.Join(env.Config.Paths.Kubelet, kubeletFlagsFile)
		if env.Host.Made(path) || filepath.Dir(path) == env.Config.Paths.Kubelet && env.Host.Made(sibling) {
			return asEdited, nil
		}
		return unknownWhose, nil
	}
	switch same, recorded := backup.Wrote(filepath.Base(path), data); {
	case same:
		return asMade, nil
	case recorded || env.Host.Made(path) && backup.To != "": // otherwise kubeadm has overwritten it
		return asEdited, nil
	}
	return unknownWhose, nil
}

// keptIn is the file that an upgrade found at a path; nil if it kept none.
func keptIn(env *Env, backup *upgrading.Backup, path string) ([]byte, error) {
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

// backupHere is the backup of this host's last upgrade, nil if there was none, and whether there was a rollback.
func backupHere(env *Env) (backup *upgrading.Backup, rolledBack bool, err error) {
	progress, err := upgrading.ReadProgress(env.Host, backupRoot(env))
	if err != nil {
		return nil, false, err
	}
	backup, err = upgrading.LastBackup(env.Host, backupRoot(env), progress)
	return backup, !progress.Began.IsZero(), err
}
