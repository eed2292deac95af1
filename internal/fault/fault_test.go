// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	stderrors "errors"
	"testing"

	"github.com/pkg/errors"
)

func TestRemedyIsFoundThroughWrapping(t *testing.T) {
	err := New("swap is on", "turn it off")
	for name, tt := range map[string]struct {
		err          error
		text, remedy string
	}{
		"none":    {errors.New("swap is on"), "swap is on", ""},
		"plain":   {err, "swap is on", "turn it off"},
		"wrapped": {errors.Wrap(err, "phase preflight"), "phase preflight: swap is on", "turn it off"},
		"joined": {stderrors.Join(err, errors.New("no answer"), errors.Wrap(New("a is full", "free some space"), "write"), err),
			"swap is on\nno answer\nwrite: a is full\nswap is on", "turn it off; free some space"},
		"outermost": {WithRemedy(errors.Wrap(err, "kubelet"), "read its log"), "kubelet: swap is on", "read its log"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, want := Of(tt.err), (Fault{tt.text, tt.remedy}); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	cause := errors.New("cause")
	if !errors.Is(WithRemedy(cause, "x"), cause) {
		t.Error("the cause is lost")
	}
	if WithRemedy(nil, "x") != nil || Remedy(nil) != "" {
		t.Error("nil became an error")
	}
}

func TestMessageAndRemedyHaveLinesOfTheirOwn(t *testing.T) {
	if got := (Fault{"swap is on", "turn it off"}).String(); got != "swap is on\n  turn it off" {
		t.Errorf("got %q", got)
	}
	if got := (Fault{Message: "swap is on"}).String(); got != "swap is on" {
		t.Errorf("got %q", got)
	}
}
