// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"path/filepath"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/phases/step"
)

// draftIdle is how long a draft may go unwritten: a save reads it back, at most, or has it open while it writes another. Its name has
// only the time when the save began: it may take hours to a slow disk, or the clock may be set meanwhile.
const draftIdle = time.Hour

// draftOf returns a snapshot's path while it's being written: hidden, and different in each run.
func draftOf(path string) string {
	return filepath.Join(filepath.Dir(path), host.TempName(filepath.Base(path)))
}

// sweep removes what killed saves of this Node have left behind: their drafts, and records without a snapshot beside these.
func sweep(env *step.Env, dir string) error {
	entries, err := env.Host.ReadDir(dir)
	if err != nil {
		return host.IgnoreMissing(err)
	}
	for _, e := range entries {
		name, found := draftIn(e.Name())
		taken, own := snapshots.TakenIn(name, env.Config.Name)
		if !found || !own {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if used, err := inUse(env, path, taken); err != nil {
			return err
		} else if used {
			continue
		}
		env.UI.Printf("Removing %s, left behind by a save that did not finish", path)
		if whole, err := host.Exists(env.Host, filepath.Join(dir, name)); err != nil {
			return err
		} else if !whole {
			if err := env.Host.Remove(filepath.Join(dir, snapshots.RecordPath(name))); err != nil {
				return err
			}
		}
		if err := env.Host.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// inUse reports whether a save may still need its draft.
func inUse(env *step.Env, path string, begun time.Time) (bool, error) {
	now := env.Host.Now()
	if now.Sub(begun) < draftIdle {
		return true, nil
	}
	info, err := env.Host.Lstat(path)
	if err != nil {
		return true, host.IgnoreMissing(err) // by now, it has the snapshot's name
	}
	return now.Sub(info.ModTime()) < draftIdle, nil
}

// draftIn returns the name of the snapshot that a directory entry is a draft of. While a draft is being written, it has a draft's
// name itself.
func draftIn(entry string) (name string, found bool) {
	for {
		of, leftover := host.LeftoverOf(entry)
		if !leftover {
			return entry, found
		}
		entry, found = of, true
	}
}
