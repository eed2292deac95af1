// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// EtcdJournal says how far a workflow has come that gives this host's etcd other data (EtcdDataReplacement), for the run that
// finishes an interrupted run. It's written before etcd stops, and removed at the workflow's end.
type EtcdJournal struct {
	// Command is the workflow's, such as etcd restore. From is its source, such as a snapshot's path.
	Command string `json:"command"`
	From    string `json:"from,omitempty"`
	// OldData is the EtcdDataReplacement's, Manifest etcd's static Pod.
	OldData  string `json:"aside"`
	Manifest string `json:"manifest"`
	// Configuration is the cluster's, for a host that begins with a snapshot.
	Configuration string `json:"configuration,omitempty"`
	// Cluster is the ID of the new data's cluster (EtcdClusterText); empty before there's any, and in a plan.
	Cluster string `json:"cluster,omitempty"`
	// Others names the other members, which the new data doesn't have.
	Others []string `json:"others,omitempty"`
	// Revision was the newest of etcd's keys, 0 if unknown. Nodes are the names of the cluster's Nodes then; empty if unknown. Unmarked are
	// the labels and taints of a control plane that this host's Node didn't have.
	Revision int64    `json:"revision,omitempty"`
	Nodes    []string `json:"nodes,omitempty"`
	Unmarked []string `json:"unmarked,omitempty"`
	// Upgrade is the version that the cluster has to be upgraded to afterwards, because its configuration comes from an older minor.
	Upgrade string `json:"upgrade,omitempty"`
	// Replaced means that the new data is in place, Serves that the control plane works with it. Since is when a restore put it there;
	// zero if it's not known.
	Replaced bool      `json:"exchanged,omitempty"`
	Serves   bool      `json:"serves,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// StartedWithoutData reports whether etcd had no data here before the workflow, so whatever is there now is the workflow's.
func (j EtcdJournal) StartedWithoutData() bool { return j.Manifest != "" && j.OldData == "" }

// ErrEtcdChanged is the error of a workflow that finds another etcd under this host's lock than before its question.
func ErrEtcdChanged() error {
	return fault.New("etcd on this host changed during the prompt: another command started or finished, or its static Pod was replaced", "run this command again")
}

// EtcdJournalPath returns the path of a host's journal.
func EtcdJournalPath(p config.Paths) string {
	return thisnode.EtcdJournalPath(p.Kubernetes)
}

// MoveJournalPath returns the path of the journal of a move to another address.
func MoveJournalPath(p config.Paths) string {
	return filepath.Join(p.Kubernetes, "tmp", "slipway-address.yaml")
}

// ReadEtcdJournal returns this host's journal; the zero journal if no workflow has left any.
func ReadEtcdJournal(env *step.Env) (EtcdJournal, error) {
	return ReadEtcdJournalOn(env.Host, env.Config.Paths)
}

// ReadEtcdJournalOn is ReadEtcdJournal before there's an Env.
func ReadEtcdJournalOn(h host.Host, p config.Paths) (j EtcdJournal, err error) {
	_, err = ownership.ReadYAML(h, EtcdJournalPath(p), &j)
	return j, err
}

// ExternalEtcd returns the etcd on other hosts that this control plane uses, or nil. A workflow that was interrupted has removed the
// static Pod of this host's etcd, but not its journal.
func ExternalEtcd(env *step.Env) (*config.ExternalEtcd, error) {
	j, err := ReadEtcdJournal(env)
	if err != nil || j.Manifest != "" {
		return nil, host.IgnoreForbidden(err)
	}
	return thisnode.ExternalEtcd(env.Host, env.Config.Paths), nil
}

// WithUndoRemedy adds to the error of a run that has moved no data yet how etcd starts again with the data it had: nothing else
// does.
func (j EtcdJournal) WithUndoRemedy(env *step.Env, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	path, pod := EtcdJournalPath(env.Config.Paths), env.Config.Paths.StaticPod(manifests.EtcdName)
	back := fmt.Sprintf("this host's etcd is stopped, and its data is as it was before `slipway %s`. To start it with that data, copy `manifest` from %s to %s, "+
		"remove %s and (if it's there) %s, and run `systemctl start %s`",
		j.Command, path, pod, path, env.Config.Paths.StaticPod(thisnode.EtcdReplayName), KubeletUnit)
	return fault.WithRemedy(err, strings.TrimPrefix(fault.Remedy(err)+"; ", "; ")+back)
}

// Write stores the journal for the next run.
func (j EtcdJournal) Write(env *step.Env) error {
	path := EtcdJournalPath(env.Config.Paths)
	if err := env.Host.EnsureDir(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return ownership.WriteYAML(env.Host, path, j)
}
