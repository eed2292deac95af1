// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestFinal: answers typical of a cluster that init is still making may last longer than answers no cluster gives.
func TestFinal(t *testing.T) {
	const making, settling = 20 * time.Second, time.Second
	for name, c := range map[string]struct {
		err  error
		ends time.Duration // when it is final, at the latest; at making it isn't yet, unless this is shorter
	}{
		"may not read":  {statusError(http.StatusForbidden), time.Minute},
		"unauthorized":  {statusError(http.StatusUnauthorized), time.Minute},
		"not there yet": {statusError(http.StatusNotFound), time.Minute},
		"redirected":    {statusError(http.StatusFound), 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := pace{}.orUsual(0)
			if p.final(kindOf(c.err), settling) {
				t.Errorf("final after %s", settling)
			}
			if got := p.final(kindOf(c.err), making); got != (c.ends <= making) {
				t.Errorf("after %s: %v", making, got)
			}
			if !p.final(kindOf(c.err), c.ends) {
				t.Errorf("not final after %s", c.ends)
			}
		})
	}
	if (pace{}).orUsual(0).final(kindOf(statusError(http.StatusServiceUnavailable)), time.Hour) {
		t.Error("a server that is not ready is asked again until the time is up")
	}
}

// TestMakingFollowsTheLimit: a cluster whose users give discovery more time may also take longer to sign cluster-info.
func TestMakingFollowsTheLimit(t *testing.T) {
	for limit, want := range map[time.Duration]time.Duration{
		time.Minute: 30 * time.Second, 5 * time.Minute: 30 * time.Second, 45 * time.Minute: 270 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			began := time.Now()
			err := pace{}.retry(ctx, "", quiet, func(context.Context) error { return failure(UnknownToken, "", "not signed") })
			if took := time.Since(began); kindOf(err) != UnknownToken || took < want || took > want+2*time.Second {
				t.Errorf("with a limit of %s: %v after %s, want it after %s", limit, err, took, want)
			}
		})
	}
}
