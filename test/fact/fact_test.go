// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fact

import (
	"errors"
	"fmt"
	"testing"
)

// recorder is a test that counts its failures.
type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

func TestIn(t *testing.T) {
	const text = "port 6443 of 192.0.2.1 is held by nginx (pid 17): run `systemctl stop nginx`, or choose --apiserver-bind-port"
	for fact, fails := range map[string]bool{
		"6443": false, "192.0.2.1": false, "pid 17": false, "nginx": false, "--apiserver-bind-port": false, "`systemctl stop nginx`": false,
		"644": true, "pid 1": true, "ngin": true, "--apiserver-bind": false, "8443": true, "": true,
		"port 6443 of 192.0.2.1": false, "is held by": true, "or choose": false, "is held by nginx": true,
	} {
		r := &recorder{}
		func() {
			defer func() { _ = recover() }()
			In(r, text, fact)
		}()
		if len(r.failed) > 0 != fails {
			t.Errorf("%q: failed %q, want %t", fact, r.failed, fails)
		}
	}
}

func TestError(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		facts []string
		fails bool
	}{
		"none, as wanted":  {},
		"one too many":     {err: errors.New("disk full"), fails: true},
		"one that lacks":   {facts: []string{"disk"}, fails: true},
		"the one wanted":   {err: errors.New("disk full"), facts: []string{"disk"}},
		"not the one":      {err: errors.New("disk full"), facts: []string{"network"}, fails: true},
		"one of two facts": {err: errors.New("disk full"), facts: []string{"disk", "network"}, fails: true},
	} {
		r := &recorder{}
		Error(r, c.err, c.facts...)
		if len(r.failed) > 0 != c.fails {
			t.Errorf("%s: failed %q, want %t", name, r.failed, c.fails)
		}
	}
}

func TestNotIn(t *testing.T) {
	r := &recorder{}
	NotIn(r, "node cp-10", "cp-1")
	if len(r.failed) > 0 {
		t.Errorf("failed %q", r.failed)
	}
	if NotIn(r, "node cp-1", "cp-1"); len(r.failed) != 1 {
		t.Errorf("failed %q, want one failure", r.failed)
	}
}
