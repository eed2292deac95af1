// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ensureProfileFiles writes the files of profiles that the API server reads. Edited files stay, and so do others' files, which an
// operator may have put there for a joining control plane.
func ensureProfileFiles(env *step.Env, component string) error {
	if component != manifests.APIServerName {
		return nil
	}
	var files []ownership.File
	for _, f := range env.Config.ProfileFiles() {
		file := ownership.File{Path: f.Path, Data: f.Data, Mode: 0o600}
		have, err := host.ReadIfExists(env.Host, f.Path)
		if err != nil {
			return err
		}
		if have != nil && !bytes.Equal(have, f.Data) && !env.Host.Unchanged(f.Path) {
			writer := staticPodWriter(env, manifests.APIServerName)
			file.SayKept(env.UI, have, "to use the profile's, move it away, and run `slipway "+writer+"` with the flags of this run")
			continue
		}
		files = append(files, file)
	}
	return node.WriteProfileFiles(env, files)
}
