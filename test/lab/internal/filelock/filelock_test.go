// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package filelock

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
)

func TestTake(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "lock")
	release, err := Take(t.Context(), path, func() { t.Error("it waits for a free lock") })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Take(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("a lock that another has: %v", err)
	}
	again, err := Take(t.Context(), path, release)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestShare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	share := func() *Shared {
		t.Helper()
		s, err := Share(t.Context(), path, func() { t.Error("it waits for a shared lock") })
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first, second := share(), share()
	if first.Alone() {
		t.Error("two are alone")
	}
	first.Release()
	if !second.Alone() {
		t.Error("the last one isn't alone")
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Share(ctx, path, cancel); !errors.Is(err, context.Canceled) {
		t.Errorf("beside one that is alone: %v", err)
	}
	second.Release()
	share().Release()
}
