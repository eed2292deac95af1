// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pkg/errors"
)

// TestGuard: a wait ends with the cause as soon as it's known, or with its own error when its time is up. It doesn't affect a
// wait that succeeds, or fails by itself.
func TestGuard(t *testing.T) {
	forever := func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("out of paper")
	}
	for name, tt := range map[string]struct {
		wait  func(context.Context) error
		fails bool // an API server that can't start
		want  string
	}{
		"succeeds":           {wait: func(context.Context) error { return nil }},
		"fails by itself":    {wait: func(context.Context) error { return errors.New("no such file") }, want: "no such file"},
		"the cause is known": {wait: forever, fails: true, want: "it did not start"},
		"the time is up":     {wait: forever, want: "out of paper"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := healthy(t)
				if tt.fails {
					h.crashed("kube-apiserver", "Error: unknown flag: --nonsense")
				}
				err := Guard(t.Context(), h, time.Minute, h.target(false), "it did not start", tt.wait)
				got := ""
				if err != nil {
					got = err.Error()
				}
				if !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
					t.Errorf("error %q, want %q", got, tt.want)
				}
				var known *Error
				if errors.As(err, &known) != tt.fails || tt.fails && (len(known.Findings) != 1 || known.Findings[0].Name != "bad-flag") {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}
