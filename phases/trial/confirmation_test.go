// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-k8s/slipway/test/fixture"
	"github.com/slipway-k8s/slipway/test/phasetest"
)

// TestClockSetBack: a change doesn't wait longer because somebody sets the host's clock back, and never longer than an hour.
func TestClockSetBack(t *testing.T) {
	for name, test := range map[string]struct{ limit, back, want time.Duration }{
		"as it is":           {limit: 2 * time.Minute, want: 2 * time.Minute},
		"set back":           {limit: 2 * time.Minute, back: time.Hour, want: 2 * time.Minute},
		"set back before it": {limit: 3 * time.Hour, want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			s := phasetest.NewStage(t, fixture.InitDocument+fixture.ClusterDocument)
			record, err := Begin(t.Context(), s.Env, "/usr/bin/slipway", nil, Record{})
			phasetest.Fatal(t, err)
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				s.FakeHost.On.Now = func() time.Time {
					now := time.Now()
					if now.Sub(began) > time.Second {
						now = now.Add(-test.back)
					}
					return now
				}
				phasetest.Fatal(t, record.WaitUntil(s.Env, began.Add(test.limit)))
				answer, err := record.AwaitAnswer(t.Context(), s.Env, func(time.Duration) {})
				if waited := time.Since(began); err != nil || answer != Unconfirmed || waited < test.want || waited > test.want+time.Minute {
					t.Errorf("%q, %v after %s", answer, err, waited)
				}
			})
		})
	}
}
