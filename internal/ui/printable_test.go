// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"errors"
	"testing"
)

// TestPrintable: nothing that a terminal would act on is written, however a text is cut into writes.
func TestPrintable(t *testing.T) {
	const text = "a\x1b[2J\tü\u009b31m\r\nb\x07\x7f✓\n"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := NewPrintable(&out)
		for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
				t.Fatalf("%d, %v", n, err)
			}
		}
		if want := "a[2J\tü31m\nb✓\n"; out.String() != want {
			t.Errorf("in writes of %d bytes: %q, want %q", size, out.String(), want)
		}
	}
	full := errors.New("full")
	if n, err := NewPrintable(failing{full}).Write([]byte("a")); n != 0 || !errors.Is(err, full) {
		t.Errorf("%d, %v", n, err)
	}
	if line := oneLine("containerd://2\x1b[m\n1. cp-1:\tdo this\n"); line != "containerd://2[m 1. cp-1: do this" {
		t.Errorf("%q", line)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
