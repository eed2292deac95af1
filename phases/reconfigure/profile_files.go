// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// missingProfileFiles are the files of profiles that the API server's flags name and this host lacks. Files that exist stay; those
// with other content are named, if this change restarts the API server.
func (r *Run) missingProfileFiles(env *step.Env) (files []ownership.File, err error) {
	restarts := node.HasComponent(r.components, manifests.APIServerName)
	for _, f := range env.Config.ProfileFiles() {
		file := ownership.File{Path: f.Path, Data: f.Data, Mode: 0o600}
		have, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return nil, err
		}
		if have == nil {
			files = append(files, file)
			continue
		}
		if restarts && !bytes.Equal(have, f.Data) {
			file.SayKept(env.UI, have, "to use the profile's, move it away before this command")
		}
	}
	return files, nil
}

// writeProfileFiles writes the files the API server is about to read.
func (r *Run) writeProfileFiles(env *step.Env) error {
	if err := node.WriteProfileFiles(env, r.profiles); err != nil {
		return err
	}
	return env.Accounts().Give(manifests.APIServerName)
}
