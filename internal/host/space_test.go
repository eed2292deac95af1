// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSpace(t *testing.T) {
	s, err := New().Space("/")
	if err != nil || s.Total == 0 || s.Free > s.Total || s.FreeInodes > s.TotalInodes {
		t.Errorf("%+v, %v", s, err)
	}
	in, err := New().Space(t.TempDir())
	beside, besideErr := New().Space(os.TempDir())
	other, otherErr := New().Space("/proc")
	if errors.Join(err, besideErr, otherErr) != nil || in.Device != beside.Device || other.Device == s.Device {
		t.Errorf("devices %d, %d, %d and %d", s.Device, in.Device, beside.Device, other.Device)
	}
	if _, err := New().Space("/no/such/directory"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestReadHeadAndTail(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "log"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for most, want := range map[int64]string{0: "", 3: "789", 10: "0123456789", 99: "0123456789"} {
		if got, err := NewAt(root).ReadTail("/log", most); err != nil || string(got) != want {
			t.Errorf("at most %d bytes: %q, %v", most, got, err)
		}
	}
	for most, want := range map[int64]string{0: "", 3: "012", 10: "0123456789", 99: "0123456789"} {
		if got, err := NewAt(root).ReadHead("/log", most); err != nil || string(got) != want {
			t.Errorf("the first %d bytes: %q, %v", most, got, err)
		}
	}
	for name, read := range map[string]func(string, int64) ([]byte, error){"tail": NewAt(root).ReadTail, "head": NewAt(root).ReadHead} {
		if _, err := read("/none", 3); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the %s of no file: %v", name, err)
		}
	}
}

func TestDate(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = []string{at.Format(http.TimeFormat)}
		if r.URL.Path == "/none" {
			w.Header()["Date"] = nil
		}
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	if got, err := New().Date(t.Context(), Probe{URL: server.URL}); err != nil || !got.Equal(at) {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := New().Date(t.Context(), Probe{URL: server.URL + "/none"}); err == nil {
		t.Errorf("without a date: %s", got)
	}
}
