// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"net/http"
	"testing"
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
			p := pace{}.orUsual()
			if got := p.final(c.err, settling); got != nil {
				t.Errorf("final after %s: %v", settling, got)
			}
			if got := p.final(c.err, making); (got != nil) != (c.ends <= making) {
				t.Errorf("after %s: %v", making, got)
			}
			if p.final(c.err, c.ends) == nil {
				t.Errorf("not final after %s", c.ends)
			}
		})
	}
	if (pace{}).orUsual().final(statusError(http.StatusServiceUnavailable), time.Hour) != nil {
		t.Error("a server that is not ready is asked again until the time is up")
	}
}
