// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/snapshots"
	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestUpload: the program gets the snapshot, then its record.
func TestUpload(t *testing.T) {
	s, _ := plane(t, "")
	var ran [][]string
	s.FakeHost.On.RunProgram = func(_ context.Context, words []string) error {
		ran = append(ran, words)
		return nil
	}
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Upload: "rclone copyto {} remote:b{}"})
	phasetest.Fatal(t, err)
	record := snapshots.RecordPath(path)
	if diff := cmp.Diff([][]string{{"rclone", "copyto", path, "remote:b" + path}, {"rclone", "copyto", record, "remote:b" + record}}, ran); diff != "" {
		t.Errorf("(-want +ran):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"restic", "backup", "/a.db"}, wordsFor(" restic  backup ", "/a.db")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestUploadFails: the snapshot stays, whole and with a record.
func TestUploadFails(t *testing.T) {
	s, _ := plane(t, "")
	s.FakeHost.On.RunProgram = func(context.Context, []string) error { return errors.New("bucket-7 is gone") }
	path, err := Save(t.Context(), s.Env, Options{Dir: dir, Upload: "to-remote --password=hunter2"})
	if err == nil {
		t.Fatal("no error")
	}
	fact.In(t, fixture.Told(err), path, snapshots.RecordPath(path), "bucket-7")
	fact.NotIn(t, s.Said.String()+fixture.Told(err), "hunter2")
	if v, err := Verify(s.Env, path, nil); !v.Recorded || err != nil {
		t.Errorf("%+v, %v", v, err)
	}
}
