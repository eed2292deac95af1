// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// RollbackFile is where a rollback of an upgrade keeps its progress, beside the backups in the directory tmp of Kubernetes.
const RollbackFile = "slipway-rollback.yaml"

// EtcdJournalPath returns the path of the journal of a workflow that gives this host's etcd other data. kubernetes is the directory
// /etc/kubernetes.
func EtcdJournalPath(kubernetes string) string {
	return filepath.Join(kubernetes, "tmp", "slipway-etcd-data.yaml")
}

// Interruption is the error while a command that gives etcd other data was interrupted. Such a command takes etcd's static Pod away until
// the data is in place.
type Interruption struct {
	// Command is the command with its arguments, without the program's name. Path is where it has noted its progress.
	Command, Path string
}

func (i Interruption) Error() string {
	return fmt.Sprintf("`slipway %s` was interrupted here, and has to finish first", i.Command)
}

// Remedy has the command once more, as it may be shown without the message.
func (i Interruption) Remedy() string { return fmt.Sprintf("run `slipway %s` again", i.Command) }

// InterruptedEtcd finds the command that was interrupted on this host while it gave etcd other data. A rollback that had changed nothing
// yet doesn't count. An error means that a file which would say so can't be read.
func InterruptedEtcd(h host.Reader, kubernetes string) (by Interruption, found bool, err error) {
	var journal struct{ Command, From string }
	path := EtcdJournalPath(kubernetes)
	if err := read(h, path, &journal); err != nil || journal.Command != "" {
		return Interruption{strings.TrimSpace(journal.Command + " " + journal.From), path}, err == nil, err
	}
	var rollback struct {
		Aside    string
		Restored bool
		Finished time.Time
	}
	path = filepath.Join(kubernetes, "tmp", RollbackFile)
	err = read(h, path, &rollback)
	if err != nil || rollback.Aside == "" || !rollback.Finished.IsZero() {
		return by, false, err
	}
	found = rollback.Restored
	if !found {
		found, err = hasBegun(h, kubernetes, rollback.Aside)
	}
	return Interruption{"upgrade rollback --restore-etcd", path}, found, err
}

// hasBegun reports whether a rollback has moved etcd's data aside, or may have stopped etcd. A host without an API server has no etcd that
// a rollback could have stopped.
func hasBegun(h host.Reader, kubernetes, aside string) (bool, error) {
	if moved, err := host.Exists(h, aside); err != nil || moved {
		return moved, err
	}
	paths := config.Paths{Manifests: filepath.Join(kubernetes, "manifests")}
	if runs, err := host.Exists(h, paths.StaticPod(manifests.EtcdName)); err != nil || runs {
		return false, err
	}
	return host.Exists(h, paths.StaticPod(manifests.APIServerName))
}

func read(h host.Reader, path string, into any) error {
	data, err := h.ReadFile(path)
	if err == nil {
		err = errors.Wrap(yaml.Unmarshal(data, into), path)
	}
	return host.IgnoreMissing(err)
}
