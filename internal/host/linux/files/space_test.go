// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-k8s/slipway/internal/host"
)

func TestSpace(t *testing.T) {
	s, err := onlyFiles().Space("/")
	if err != nil || s.Total == 0 || s.Free > s.Total || s.FreeInodes > s.TotalInodes {
		t.Errorf("%+v, %v", s, err)
	}
	in, err := onlyFiles().Space(t.TempDir())
	beside, besideErr := onlyFiles().Space(os.TempDir())
	other, otherErr := onlyFiles().Space("/proc")
	if errors.Join(err, besideErr, otherErr) != nil || in.Device != beside.Device || other.Device == s.Device {
		t.Errorf("devices %d, %d, %d and %d", s.Device, in.Device, beside.Device, other.Device)
	}
	if _, err := onlyFiles().Space("/no/such/directory"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestReadHeadAndTail(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "log"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{0: "", 3: "789", 10: "0123456789", 99: "0123456789"} {
		if got, err := host.ReadTail(onlyFilesAt(root), "/log", most); err != nil || string(got) != want {
			t.Errorf("at most %d bytes: %q, %v", most, got, err)
		}
	}
	for most, want := range map[int64]string{0: "", 3: "012", 10: "0123456789", 99: "0123456789"} {
		if got, err := host.ReadHead(onlyFilesAt(root), "/log", most); err != nil || string(got) != want {
			t.Errorf("the first %d bytes: %q, %v", most, got, err)
		}
	}
	for name, read := range map[string]func(host.FileReader, string, int64) ([]byte, error){"tail": host.ReadTail, "head": host.ReadHead} {
		if _, err := read(onlyFilesAt(root), "/none", 3); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the %s of no file: %v", name, err)
		}
	}
}
