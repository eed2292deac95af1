// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pkg/errors"
)

var update = flag.Bool("update", false, "write what the golden files should hold")

const configs = "../../testdata/configs"

// message is a fault or warning with file, line and, usually, a field.
var message = regexp.MustCompile(`^[a-z0-9-]+\.yaml:(\d+:)? \S`)

// TestConfigs checks the messages for every file of testdata/configs: the faults of invalid-*, and the warnings of valid-*
// (without a file if there are none).
func TestConfigs(t *testing.T) {
	files, err := filepath.Glob(configs + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Experimental = strings.Contains(name, "-experimental-")
			warnings, err := Validate(t.Context(), Source{Name: name, Data: readFile(t, file)}, opts)
			var faults Faults
			switch {
			case err != nil && !errors.As(err, &faults):
				t.Fatalf("%T: %v", err, err)
			case strings.HasPrefix(name, "valid-") && err != nil:
				t.Fatal(err)
			case strings.HasPrefix(name, "invalid-") && err == nil:
				t.Fatal("no fault")
			}
			var got strings.Builder
			for _, f := range faults {
				got.WriteString(f.Error() + "\n")
			}
			for _, w := range warnings {
				got.WriteString("warning: " + w + "\n")
			}
			for line := range strings.Lines(got.String()) {
				if !message.MatchString(strings.TrimPrefix(line, "warning: ")) {
					t.Errorf("no file and line: %s", line)
				}
				if looksSecret().MatchString(line) || strings.Contains(line, "SECRET") {
					t.Errorf("shows a secret: %s", line)
				}
			}
			checkGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", got.String())
		})
	}
}

// checkGolden compares got with a file, which doesn't exist if got is empty.
func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		if got == "" {
			_ = os.Remove(file)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil && (got != "" || !errors.Is(err, fs.ErrNotExist)) {
		t.Fatal(err)
	}
	sameText(t, want, []byte(got))
}
