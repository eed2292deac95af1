// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/spf13/pflag"

	"github.com/slipway-k8s/slipway/cmd/slipway/env"
	"github.com/slipway-k8s/slipway/phases/snapshot"
	"github.com/slipway-k8s/slipway/phases/step"
)

// restoring has the flags of an init that doesn't begin a cluster, but restores one.
type restoring struct {
	file string
	keys env.Opening
}

func (r *restoring) bind(fs *pflag.FlagSet) {
	fs.StringVar(&r.file, "restore", "", "`file` with a snapshot of etcd: instead of a new cluster, this one is restored, as its only control plane")
	r.keys.Bind(fs)
}

// within adds the restore to a workflow.
func (r *restoring) within(p *env.Parts, workflow []step.Phase) ([]step.Phase, error) {
	if r.file == "" {
		return workflow, snapshot.NoneInterrupted(p.Env)
	}
	file, _, err := env.Absolute(r.file, "")
	if err != nil {
		return nil, err
	}
	with, err := r.keys.Identities(p.Env.Host)
	if err != nil {
		return nil, err
	}
	bare, err := snapshot.NewBareHost(p.Env, snapshot.Source{File: file, With: with})
	if err != nil {
		return nil, err
	}
	bare.Prepare(p.Env)
	return bare.Within(workflow), nil
}
