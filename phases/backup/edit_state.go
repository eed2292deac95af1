// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"bytes"
	"crypto/x509"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// EditState says whether a file is as Slipway made it.
type EditState int

const (
	EditUnknown EditState = iota // nothing says whether somebody has edited it
	Unedited                     // nobody has edited it
	Edited                       // somebody has edited or replaced it
)

// DetectEdit decides by the host's notes of Slipway's files, and by the records of upgrades and of changes on trial, which also
// overwrite others' files. Files from kubeadm, from an earlier release's upgrade, or put back by a rollback are of unknown origin.
func DetectEdit(env *step.Env, path string) (EditState, error) {
	data, err := host.ReadIfExists(env.Host, path)
	if err != nil || data == nil {
		return Unedited, err
	}
	backup, rolledBack, err := LastUpgrade(env)
	if err != nil {
		return EditUnknown, err
	}
	kept, err := keptIn(env, backup, path)
	switch {
	case err != nil || rolledBack && bytes.Equal(kept, data):
		return EditUnknown, err
	case bytes.Equal(kept, data):
		backup = nil // that upgrade hasn't replaced it yet
	}
	if env.Host.Unchanged(path) {
		edited, err := trial.IsRestoredEdit(env, path, data)
		if edited {
			return Edited, err
		}
		return Unedited, err
	}
	if backup == nil {
		return withoutBackup(env, path), nil
	}
	switch same, recorded := backup.Wrote(filepath.Base(path), data); {
	case same:
		return Unedited, nil
	case recorded || env.Host.CreatedBySlipway(path) && backup.To != "": // otherwise kubeadm has overwritten it
		return Edited, nil
	}
	return EditUnknown, nil
}

// withoutBackup is DetectEdit for a changed file that no upgrade has replaced. Some editors replace a file instead of changing it,
// and the new file has no note.
func withoutBackup(env *step.Env, path string) EditState {
	paths := env.Config.Paths
	if env.Host.CreatedBySlipway(path) || filepath.Dir(path) == paths.Kubelet && env.Host.CreatedBySlipway(paths.KubeletFlags()) {
		return Edited
	}
	return EditUnknown
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

// LastUpgrade returns the backup of this host's last upgrade, nil if there was none, and whether there was a rollback.
func LastUpgrade(env *step.Env) (backup *upgrading.Backup, rolledBack bool, err error) {
	progress, err := upgrading.ReadProgress(env.Host, node.BackupRoot(env))
	if err != nil {
		return nil, false, err
	}
	backup, err = upgrading.LastBackup(env.Host, node.BackupRoot(env), progress)
	return backup, !progress.Began.IsZero(), err
}

// EtcdID formats an ID as etcd and its tools do.
func EtcdID(id uint64) string { return strconv.FormatUint(id, 16) }

// MemberIn reads from etcd's manifest which member of etcd it runs.
func MemberIn(manifest []byte) (manifests.LocalMember, error) {
	pod, err := manifests.DecodePod(manifest)
	if err != nil {
		return manifests.LocalMember{}, err
	}
	member, found := manifests.ReadEtcd(pod)
	if !found {
		err = errors.New("it does not say which member of etcd it is")
	}
	return member, err
}

// ClusterCAs returns the CAs of this host's cluster, and their file. A worker has them in its kubelet's kubeconfig file.
func ClusterCAs(env *step.Env) (list []*x509.Certificate, path string, err error) {
	path = env.Config.Paths.KubeletKubeconfig()
	if !env.Config.ControlPlane {
		conf, err := thisnode.ReadKubeletFile(env.Host, path)
		if err == nil {
			return conf.Trusted, path, nil
		}
	}
	path = filepath.Join(env.Config.Paths.PKI, "ca.crt")
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return nil, path, err
	}
	list, err = certs.ParseCerts(data)
	return list, path, errors.Wrap(err, path)
}

// ClusterPins returns the CAs' hashes, as a backup records them.
func ClusterPins(list []*x509.Certificate) string {
	var pins []string
	for _, ca := range list {
		pins = append(pins, certs.PublicKeyPin(ca))
	}
	return strings.Join(pins, ",")
}
