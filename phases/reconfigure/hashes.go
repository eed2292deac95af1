// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// recordInspectedFiles notes the files in which the checks look for edits. Afterwards, a run pulls images and waits for its turn,
// for minutes.
func (r *Run) recordInspectedFiles(env *step.Env) error {
	var paths []string
	if env.Config.ControlPlane {
		for _, name := range node.StaticPods(env) {
			paths = append(paths, env.Config.Paths.StaticPod(name))
		}
	}
	paths = append(paths, env.Config.Paths.KubeletConfig())
	if r.Reverts != nil {
		for _, f := range r.Reverts.Files {
			paths = append(paths, f.Path)
		}
	}
	return r.recordHashes(env, paths...)
}

// recordWrittenFiles notes the other files this run is about to write.
func (r *Run) recordWrittenFiles(env *step.Env) error {
	writes, err := r.writes(env)
	if err != nil {
		return err
	}
	for _, w := range writes {
		if err := r.recordHashes(env, w.Path); err != nil {
			return err
		}
	}
	return nil
}

// recordHashes notes the content of files new to this run.
func (r *Run) recordHashes(env *step.Env, paths ...string) error {
	if r.seen == nil {
		r.seen = map[string]string{}
	}
	for _, path := range paths {
		if _, known := r.seen[path]; known {
			continue
		}
		data, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return err
		}
		r.seen[path] = host.HashOf(data)
	}
	return nil
}

// unedited fails if somebody has edited a file since this run has seen it: the checks haven't looked for that edit. It hasn't
// been written yet, so a change on trial goes back without it.
func (r *Run) unedited(env *step.Env, paths ...string) error {
	for _, path := range paths {
		data, err := host.ReadIfExists(env.Host, path)
		if err != nil {
			return err
		}
		if before, known := r.seen[path]; known && host.HashOf(data) != before {
			if r.record != nil {
				r.record.Files = slices.DeleteFunc(r.record.Files, func(f trial.File) bool { return f.Path == path })
			}
			return fault.New(path+" has been changed since this run looked at it", "run the same command again, which looks for edits again")
		}
	}
	return nil
}
