// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bytes"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/phases/step"
)

// WrittenAt returns when a file got its content. A file that was put back is as old as the file it was kept from, so it isn't taken
// for an edit from after a change of the cluster's configuration.
func WrittenAt(env *step.Env, path string) (time.Time, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	var at File
	last, err := newest(env, func(r *Record) bool {
		i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == path })
		if i >= 0 {
			at = r.Files[i]
		}
		return i >= 0
	})
	if err != nil || last == nil || at.Written.IsZero() || last.State == Storing || last.State == Counts {
		return info.ModTime(), err
	}
	kept, err := last.Kept(env, at)
	if err != nil {
		return time.Time{}, err
	}
	now, err := env.Host.ReadFile(path)
	if !bytes.Equal(kept, now) {
		return info.ModTime(), err
	}
	return at.Written, err
}
