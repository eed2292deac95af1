// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzLoad: whatever the file holds, loading neither panics nor fails in a
// way that names no fault, and what migrates migrates again to the same.
func FuzzLoad(f *testing.F) {
	files, err := filepath.Glob(configs + "/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		src := Source{Name: "f.yaml", Data: data}
		_, _, err := LoadInit(t.Context(), &src, InitFlags{}, testOptions())
		var faults Faults
		if err != nil && !errors.As(err, &faults) {
			t.Fatalf("%T: %v", err, err)
		}
		for _, fault := range faults {
			if strings.ContainsAny(fault.Message+fault.Field, "\n\r\x1b") {
				t.Errorf("control characters in %q", fault)
			}
		}
		first, _, err := Migrate(t.Context(), src, testOptions())
		if err != nil {
			return
		}
		second, _, err := Migrate(t.Context(), Source{Name: "first", Data: first}, testOptions())
		if err != nil {
			t.Fatalf("what Migrate wrote is refused: %v\n%s", err, first)
		}
		sameText(t, first, second)
	})
}
