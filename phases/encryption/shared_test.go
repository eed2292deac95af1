// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"testing"

	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestUpload: the file that's uploaded in the middle of a rotation can't outlive it. In all tests, readAll looks at each moment at the
// control plane that joins with an upload.
func TestUpload(t *testing.T) {
	w := newWorld(t, "cp-1", "cp-2")
	w.everywhere(t, Enable)
	for _, goal := range []Goal{Rotate, Disable} {
		phasetest.Fatal(t, w.planes[0].run(goal))
		w.upload(w.planes[0])
		early := w.shared
		w.everywhere(t, goal)
		if len(early) < 2 || len(w.shared) > 0 && w.shared[0] != w.target(t) {
			t.Errorf("%s: %v was uploaded, and at the end, there is %v", goal, early, w.shared)
		}
	}
}
