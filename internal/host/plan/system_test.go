// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"errors"
	"os/exec"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestPlannedProgram: a plan finds the program it writes, as a shell would, and doesn't run it.
func TestPlannedProgram(t *testing.T) {
	early, late := t.TempDir(), t.TempDir()
	fixture.PutMode(t, late+"/kubelet", "#!/bin/sh\necho Kubernetes v1.36.4\n", 0o755)
	t.Setenv("PATH", early+":"+late)
	o := NewOverlay(linux.New(), func(host.Action) {})
	if path, err := o.LookPath("kubelet"); path != late+"/kubelet" || err != nil {
		t.Errorf("before: %s, %v", path, err)
	}
	if text, err := o.ProgramVersion(t.Context(), late+"/kubelet"); text != "Kubernetes v1.36.4" || err != nil {
		t.Errorf("before: %s, %v", text, err)
	}
	if err := o.WriteSet([]host.SetFile{fixture.Member(early+"/kubelet", "x", 0o755), fixture.Member(early+"/runc", "x", 0o755), fixture.Member(early+"/text", "x", 0o644)}, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kubelet", "runc"} {
		path, err := o.LookPath(name)
		if path != early+"/"+name || err != nil {
			t.Errorf("%s: %s, %v", name, path, err)
		}
		if _, err := o.ProgramVersion(t.Context(), path); !errors.Is(err, host.ErrNotInPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if path, err := o.LookPath("text"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("not executable: %s, %v", path, err)
	}
	if err := o.Remove(early + "/kubelet"); err != nil {
		t.Fatal(err)
	}
	if path, _ := o.LookPath("kubelet"); path != late+"/kubelet" {
		t.Errorf("removed: %s", path)
	}
}
