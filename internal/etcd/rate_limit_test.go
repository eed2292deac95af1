// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"
)

func TestPace(t *testing.T) {
	const pace, size = Pace(2 << 20), 512 << 10
	var out bytes.Buffer
	started := time.Now()
	if n, err := pace.Writer(t.Context(), &out).Write(make([]byte, size)); n != size || err != nil || out.Len() != size {
		t.Errorf("wrote %d bytes (%d arrived): %v", n, out.Len(), err)
	}
	if took, least := time.Since(started), time.Second*(size-maxRequests)/time.Duration(pace); took < least {
		t.Errorf("took %s, at least %s expected", took, least)
	}
}

func TestPaceEnds(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := Pace(1).Writer(ctx, new(bytes.Buffer)).Write(make([]byte, 2*maxRequests)); !errors.Is(err, cause) {
		t.Errorf("the error is %v", err)
	}
	soon, cancel2 := context.WithTimeout(t.Context(), time.Hour)
	defer cancel2()
	if _, err := Pace(1).Writer(soon, new(bytes.Buffer)).Write(make([]byte, 2*maxRequests)); err == nil {
		t.Error("a deadline that comes too early doesn't count")
	}
}
