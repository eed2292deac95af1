// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// PruneData removes the data that this host's etcd had before it got other data.
type PruneData struct{ dirs []string }

// NewPruneData finds the directories, and fails if they may still be needed: while etcd doesn't work, or while a workflow that needs
// them hasn't finished.
func NewPruneData(ctx context.Context, env *step.Env) (*PruneData, error) {
	if err := checkLocalEtcd(env); err != nil {
		return nil, err
	}
	by, interrupted, err := interruption(env)
	switch {
	case err != nil:
		return nil, err
	case interrupted:
		return nil, fault.WithRemedy(errors.WithMessage(by, "etcd's old data may still be needed"),
			"if you still want its result, "+by.Remedy()+" first. Otherwise, once etcd works with the data that you want, remove "+by.Path)
	}
	path := env.Config.Paths.StaticPod(manifests.EtcdName)
	manifest, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return nil, err
	}
	replacement, err := node.NewEtcdDataReplacement(manifest)
	if err != nil {
		return nil, errors.WithMessage(err, path)
	}
	p := &PruneData{}
	if err := p.find(env, filepath.Dir(replacement.Data)); err != nil || len(p.dirs) == 0 {
		return p, err
	}
	return p, fault.WithRemedy(errors.WithMessage(node.CheckServesOwnData(ctx, env), "etcd's old data stays while this host's etcd does not work with its present data"),
		"`slipway diagnose` says what is wrong")
}

// interruption finds the command that may still need the old data. A rollback of another upgrade than the last doesn't: nobody can go on
// with it.
func interruption(env *step.Env) (by thisnode.Interruption, found bool, err error) {
	by, found, err = thisnode.InterruptedEtcd(env.Host, env.Config.Paths.Kubernetes)
	if err != nil || !found || filepath.Base(by.Path) != thisnode.RollbackFile {
		return by, found, err
	}
	progress, err := upgrading.ReadProgress(env.Host, node.BackupRoot(env))
	if err != nil {
		return by, false, err
	}
	last, err := upgrading.LastBackup(env.Host, node.BackupRoot(env), progress)
	return by, last != nil && progress.IsOf(last), err
}

func (p *PruneData) find(env *step.Env, dir string) error {
	entries, err := env.Host.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if _, aside := thisnode.ParseOldEtcdData(e.Name()); aside {
			p.dirs = append(p.dirs, filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// Summary names the directories, before the user confirms; empty if there are none.
func (p *PruneData) Summary() string {
	if len(p.dirs) == 0 {
		return ""
	}
	return "This removes the data that etcd had before its data was restored, for good:\n" + strings.Join(p.dirs, "\n")
}

// Phases is the workflow.
func (p *PruneData) Phases() []step.Phase {
	return []step.Phase{{Name: "etcd-data", Summary: "Remove the data that etcd had before", Run: p.run}}
}

// run looks again: etcd may have failed while the operator thought about the question.
func (p *PruneData) run(ctx context.Context, env *step.Env) error {
	if len(p.dirs) == 0 {
		env.UI.Nextf("There is no old data of etcd to remove")
	} else if _, err := NewPruneData(ctx, env); err != nil {
		return err
	}
	for _, dir := range p.dirs {
		env.UI.Printf("Removing %s", dir)
		if _, err := env.Host.RemoveTree(dir); err != nil {
			return err
		}
	}
	return nil
}
