// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/step"
)

// placeholder stands for a file's path in the operator's command.
const placeholder = "{}"

// upload hands a snapshot, and then its record, to the operator's program.
func upload(ctx context.Context, env *step.Env, command, path string) error {
	for _, file := range []string{path, snapshots.RecordPath(path)} {
		words := wordsFor(command, file)
		env.UI.Printf("Handing %s to %s", file, words[0])
		if err := env.Host.RunProgram(ctx, words); err != nil {
			return fault.WithRemedy(errors.WithMessagef(err, "the snapshot %s is only on this host, because --upload failed", path),
				"fix the cause, and hand it and "+snapshots.RecordPath(path)+" to the program yourself, or save etcd again")
		}
	}
	return nil
}

// wordsFor returns the command for a file, split at spaces. Without a placeholder, the path comes last.
func wordsFor(command, file string) []string {
	words := strings.Fields(command)
	if !slices.ContainsFunc(words, func(w string) bool { return strings.Contains(w, placeholder) }) {
		return append(words, file)
	}
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, placeholder, file)
	}
	return words
}
