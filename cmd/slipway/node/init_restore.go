// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/snapshot"
	"github.com/slipway-k8s/slipway/phases/step"
)

// restoring has the flags of an init that doesn't begin a cluster, but restores one.
type restoring struct {
	file string
	keys env.Opening
}

func (r *restoring) bind(fs *pflag.FlagSet) {
	fs.StringVar(&r.file, "restore", "", "`file` with a snapshot of etcd: restore its cluster instead of creating one; this host becomes the only control plane")
	r.keys.Bind(fs)
}

// source is the snapshot, with the keys that open it.
func (r *restoring) source(h host.Host) (snapshot.Source, error) {
	file, _, err := env.Absolute(r.file, "")
	if err != nil {
		return snapshot.Source{}, err
	}
	with, err := r.keys.Identities(h)
	return snapshot.Source{File: file, With: with}, err
}

// configuration is the restored cluster's; nil for a new cluster.
func (r *restoring) configuration(h host.Host) (*config.Source, error) {
	if r.file == "" {
		return nil, nil
	}
	from, err := r.source(h)
	if err != nil {
		return nil, err
	}
	return snapshot.Configuration(h, from)
}

// within adds the restore to a workflow.
func (r *restoring) within(p *env.Parts, workflow []step.Phase) ([]step.Phase, error) {
	if r.file == "" {
		return workflow, snapshot.NoneInterrupted(p.Env)
	}
	from, err := r.source(p.Env.Host)
	if err != nil {
		return nil, err
	}
	bare, err := snapshot.NewBareHost(p.Env, from)
	if err != nil {
		return nil, err
	}
	bare.Prepare(p.Env)
	return bare.AddTo(workflow), nil
}
