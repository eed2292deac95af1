// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
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
	journal, err := node.ReadEtcdJournal(env)
	if err != nil {
		return nil, err
	}
	if journal.Command != "" {
		return nil, fault.New(fmt.Sprintf("`slipway %s %s` has not finished here, and may need etcd's old data", journal.Command, journal.From),
			"run it again first. If etcd has got its data by other means since, remove "+node.EtcdJournalPath(env.Config.Paths)+" instead")
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
	own, _ := thisnode.EtcdMember(env.Host, env.Config.Paths)
	return p, works(ctx, env, own.PeerURL)
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

// works fails unless this host's member works with its present data.
func works(ctx context.Context, env *step.Env, peerURL string) error {
	all, err := etcd.AskHealth(ctx, env.Etcd)
	if err == nil && !slices.ContainsFunc(all, func(m etcd.Health) bool { return m.At(peerURL) && m.Err == nil }) {
		err = errors.New(etcd.DescribeHealth(all, ""))
	}
	return fault.WithRemedy(errors.WithMessage(err, "etcd's old data stays while this host's etcd does not work with its present data"),
		"`slipway diagnose` says what is wrong")
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
