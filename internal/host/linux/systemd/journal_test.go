// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/test/fact"
)

// fakeJournalctl puts a fake journalctl into PATH.
func fakeJournalctl(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "journalctl"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestJournal(t *testing.T) {
	fakeJournalctl(t, `printf '%s\n' "$*" >"${0%journalctl}args"; cat <<'END'
{"__REALTIME_TIMESTAMP":"1700000000100000","SYSLOG_IDENTIFIER":"kubelet","MESSAGE":"too old"}
{"__REALTIME_TIMESTAMP":"1700000000900000","SYSLOG_IDENTIFIER":"kubelet","MESSAGE":"E1121 \"quoted\""}
{"__REALTIME_TIMESTAMP":"1700000001000000","SYSLOG_IDENTIFIER":"systemd","MESSAGE":[104,105,255]}
{"__REALTIME_TIMESTAMP":"1700000002000000","SYSLOG_IDENTIFIER":"kubelet","MESSAGE":null}
{"__REALTIME_TIMESTAMP":"1700000003000000","SYSLOG_IDENTIFIER":["a","b"],"MESSAGE":"twice"}
{"__REALTIME_TIMESTAMP":"1700000004000000","MESSAGE":"nobody"}
END`)
	got, err := onlyUnits().Journal(t.Context(), "kubelet", time.UnixMicro(1700000000500000), 50)
	if err != nil {
		t.Fatal(err)
	}
	want := []host.JournalEntry{
		{Time: time.UnixMicro(1700000000900000), Program: "kubelet", Message: `E1121 "quoted"`},
		{Time: time.UnixMicro(1700000001000000), Program: "systemd", Message: "hi?"},
		{Time: time.UnixMicro(1700000002000000), Program: "kubelet", Message: ""},
		{Time: time.UnixMicro(1700000003000000), Program: "", Message: "twice"},
		{Time: time.UnixMicro(1700000004000000), Program: "", Message: "nobody"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	dir, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	args, _ := os.ReadFile(filepath.Join(dir, "args"))
	for _, arg := range []string{"--unit=kubelet.service", "--lines=50", "--since=@1700000000", "--output=json", "--all"} {
		if !strings.Contains(string(args), arg) {
			t.Errorf("the arguments %q lack %s", args, arg)
		}
	}
}

// TestHugeJournalEntry: an entry that's too long doesn't hide the others.
func TestHugeJournalEntry(t *testing.T) {
	entry := func(message string) string {
		return `{"__REALTIME_TIMESTAMP":"1700000000000000","SYSLOG_IDENTIFIER":"kubelet","MESSAGE":"` + message + "\"}\n"
	}
	got, err := parseJournal(entry("a")+entry(strings.Repeat("x", journalLine))+entry("b"), time.Time{})
	if err != nil || len(got) != 2 || got[0].Message != "a" || got[1].Message != "b" {
		t.Errorf("%d entries, %v", len(got), err)
	}
}

func TestJournalFails(t *testing.T) {
	for name, test := range map[string]struct {
		script string
		want   []string
	}{
		"refused": {"echo 'No journal files were opened' >&2; exit 1", []string{"journal", "kubelet", "journalctl: No journal", "were opened: exit status 1"}},
		"garbage": {"echo hello", []string{"entry", "journal", "invalid character 'h'"}},
		"no time": {`echo '{"MESSAGE":"x"}'`, []string{"time", "entry", "journal"}},
	} {
		t.Run(name, func(t *testing.T) {
			fakeJournalctl(t, test.script)
			_, err := onlyUnits().Journal(t.Context(), "kubelet", time.Time{}, 5)
			fact.Error(t, err, test.want...)
		})
	}
}

func TestJournalHangs(t *testing.T) {
	fakeJournalctl(t, "exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	started := time.Now()
	_, err := onlyUnits().Journal(ctx, "kubelet", time.Time{}, 5)
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(started) > 30*time.Second {
		t.Errorf("error %v after %s", err, time.Since(started))
	}
}
