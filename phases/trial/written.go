// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"bytes"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/phases/step"
)

// WrittenAt returns when a file got its content. A file that was put back is as old as the file it was kept from, so it isn't taken
// for an edit from after a change of the cluster's configuration.
func WrittenAt(env *step.Env, path string) (time.Time, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	former, err := lastRestoredFile(env, path)
	if err != nil || former == nil || former.Written.IsZero() {
		return info.ModTime(), err
	}
	return former.Written, nil
}

// lastRestoredFile returns a file that is as before the last change of it, unless that counts; nil if it isn't.
func lastRestoredFile(env *step.Env, path string) (*File, error) {
	var former File
	last, err := newest(env, func(r *Record) bool {
		i := slices.IndexFunc(r.Files, func(f File) bool { return f.Path == path })
		if i >= 0 {
			former = r.Files[i]
		}
		return i >= 0
	})
	if err != nil || last == nil || last.State == Storing || last.State == Completed {
		return nil, err
	}
	kept, err := last.OriginalContent(env, former)
	if err != nil {
		return nil, err
	}
	now, err := host.ReadIfExists(env.Host, path)
	if err != nil || now == nil || !bytes.Equal(kept, now) {
		return nil, err
	}
	return &former, nil
}
