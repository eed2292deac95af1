// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package progress

import (
	"bytes"
	"errors"
	"regexp"
	"testing"
	"time"
)

func TestDo(t *testing.T) {
	var out bytes.Buffer
	log := New(&out)
	broken := errors.New("broken")
	if err := log.Do("one", func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := log.Do("two", func() error { return broken }); !errors.Is(err, broken) {
		t.Fatalf("got %v", err)
	}
	want := regexp.MustCompile("^one …\none: done in [0-9.]+s\ntwo …\ntwo: failed in [0-9.]+s\n$")
	if !want.Match(out.Bytes()) {
		t.Errorf("got\n%s", out.String())
	}
}

// Steps side by side each have their own line, on a terminal too.
func TestSideBySide(t *testing.T) {
	for live, want := range map[bool]string{
		false: "one …\ntwo …\na word\ntwo: done in [0-9.]+s\none: done in [0-9.]+s\n",
		true:  "one …\ntwo …\na word\ntwo: done in [0-9.]+s\none … 2m0s\r\033\\[Kone: done in [0-9.]+s\n",
	} {
		var out bytes.Buffer
		log := New(&out)
		log.live = live
		_ = log.Do("one", func() error {
			_ = log.Do("two", func() error {
				log.Printf("a %s", "word")
				return nil
			})
			if live {
				log.beat("one", 2*time.Minute)
			}
			return nil
		})
		if !regexp.MustCompile("^" + want + "$").Match(out.Bytes()) {
			t.Errorf("live is %v: got\n%q", live, out.String())
		}
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		140 * time.Millisecond: "0.1s", 9400 * time.Millisecond: "9.4s", 65400 * time.Millisecond: "1m5s",
	} {
		if got := inSeconds(d); got != want {
			t.Errorf("Elapsed(%v) = %q, want %q", d, got, want)
		}
	}
}
