// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"io"

	"golang.org/x/time/rate"
)

// Pace is how many bytes per second are read or written beside an etcd that serves clients with the same disk and processors. Zero
// is no limit. Reading and writing end with their context.
type Pace int

// maxRequests is how many bytes go without a pause.
const maxRequests = 64 << 10

// keeper returns a function that is told of n more bytes, and waits until they're due.
func (p Pace) keeper(ctx context.Context) func(n int) error {
	if p == 0 {
		return func(int) error { return context.Cause(ctx) }
	}
	limiter := rate.NewLimiter(rate.Limit(p), maxRequests)
	return func(n int) error {
		for ; n > 0; n -= maxRequests {
			if err := limiter.WaitN(ctx, min(n, maxRequests)); err != nil {
				return cmp.Or(context.Cause(ctx), err)
			}
		}
		return nil
	}
}

// Writer writes to w at this pace, until ctx ends.
func (p Pace) Writer(ctx context.Context, w io.Writer) io.Writer {
	return pacedWriter{w, p.keeper(ctx)}
}

type pacedWriter struct {
	io.Writer
	keep func(n int) error
}

func (w pacedWriter) Write(b []byte) (int, error) {
	if err := w.keep(len(b)); err != nil {
		return 0, err
	}
	return w.Writer.Write(b)
}
