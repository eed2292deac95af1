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

// saveTimeout is how long a save may take: an older draft isn't in use any more. etcd recommends databases of 8 GiB at most.
const saveTimeout = time.Hour

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
		if !found || !own || env.Host.Now().Sub(taken) < saveTimeout {
			continue
		}
		path := filepath.Join(dir, e.Name())
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
