// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/kill"
)

func childSync(dir string) error {
	_, removed := onlyFiles().RemoveTree(filepath.Join(dir, "link"))
	_, given := onlyFiles().SetTreeOwner(filepath.Join(dir, "given"), host.Owner{UID: 4711, GID: 4711})
	return errors.Join(onlyFiles().SyncFiles(filepath.Join(dir, "given")), removed, given)
}

// TestChangesOfManyFilesAreDurable: the removal of a directory's entries, and changes of owners before the last, which says that
// all are done.
func TestChangesOfManyFilesAreDurable(t *testing.T) {
	asRoot(t)
	dir := t.TempDir()
	fixture.Put(t, dir, "data/stays/file", "")
	fixture.Put(t, dir, "given/file", "")
	if err := os.Symlink("data/stays", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	run := kill.Run{Below: []string{dir}}
	if err := run.Do(child(t, "sync", dir)); errors.Is(err, kill.ErrNotAllowed) {
		t.Skip(err)
	} else if err != nil || run.Status.ExitStatus() != 0 {
		t.Fatal(err, run.Status)
	}
	var got []string
	for _, s := range run.Steps {
		rel, _ := filepath.Rel(dir, s.Path)
		got = append(got, s.Call+" "+rel)
	}
	want := []string{"unlinkat data/stays/file", "fsync data/stays", "fchownat given/file", "syncfs given", "fchown given", "fsync given", "syncfs given"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

func TestSyncFilesOfNothing(t *testing.T) {
	err := onlyFilesAt("/none").SyncFiles("/x")
	if fact.Error(t, err, "/none/x"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
