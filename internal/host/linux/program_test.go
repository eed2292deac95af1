// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/test/fact"
	"github.com/slipway-k8s/slipway/test/fixture"
)

// TestRunProgram: a program gets its words as they are, and this process's environment.
func TestRunProgram(t *testing.T) {
	h := New()
	defer h.Close()
	out := filepath.Join(t.TempDir(), "out")
	t.Setenv("REMOTE_TOKEN", "t0ken")
	t.Setenv("OUT", out)
	fixture.FakeProgram(t, "to-remote", `printf '%s\n' "$@" "$REMOTE_TOKEN" >"$OUT"`)
	if err := h.RunProgram(t.Context(), []string{"to-remote", "/a b", "$(id); *"}); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil || string(got) != "/a b\n$(id); *\nt0ken\n" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestRunProgramLeavesAChild: a program that ends well has done its work, even if a child in the background keeps its output open.
func TestRunProgramLeavesAChild(t *testing.T) {
	h := New()
	defer h.Close()
	fixture.FakeProgram(t, "to-remote", "/bin/sleep 5 & echo done")
	fact.Error(t, h.RunProgram(t.Context(), []string{"to-remote"}))
	fixture.FakeProgram(t, "to-remote", "/bin/sleep 5 & exit 3")
	fact.Error(t, h.RunProgram(t.Context(), []string{"to-remote"}), "to-remote", "3")
}

func TestRunProgramFails(t *testing.T) {
	h := New()
	defer h.Close()
	fixture.FakeProgram(t, "to-remote", "echo 1 of 2; echo bucket-7 is gone >&2; exit 3")
	fact.Error(t, h.RunProgram(t.Context(), []string{"to-remote"}), "to-remote", "bucket-7", "3")
	fact.Error(t, h.RunProgram(t.Context(), []string{"no-such-program"}), "no-such-program")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("SIGTERM"))
	fact.Error(t, h.RunProgram(ctx, []string{"to-remote"}), "SIGTERM")
}
