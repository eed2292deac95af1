// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"encoding/json"
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
			if got := Of(tt.err); got.Message != tt.text || got.Remedy != tt.remedy {
				t.Errorf("got %q", got)
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

func TestText(t *testing.T) {
	for _, tt := range []struct {
		f    Finding
		want string
	}{
		{Finding{Message: "swap is on", Remedy: "turn it off"}, "swap is on\n  turn it off"},
		{Finding{Message: "swap is on"}, "swap is on"},
		{NewFinding("Swap", Note, "", "swap is %s", "off"), "swap is off"},
		{NewFinding("Swap", Error, "turn it off", "swap is on"), "[ERROR Swap]: swap is on\n  turn it off"},
		{NewFinding("Swap", Warning, "", "swap is on"), "[WARNING Swap]: swap is on"},
		{Finding{Name: "swap", Severity: Broken, Subject: "kubelet", Message: "swap is on", Remedy: "turn it off", Evidence: []string{"E1121", "E1122"}},
			"  [swap] kubelet: swap is on\n    | E1121\n    | E1122\n    what to do: turn it off"},
	} {
		if got := tt.f.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestJSON: version 1 of a cause has the remedy as next.
func TestJSON(t *testing.T) {
	cause := Finding{Name: "swap", Severity: Broken, Subject: "kubelet", Message: "swap is on", Remedy: "turn it off", Evidence: []string{"E1121"}}
	check := Finding{Name: "Swap", Severity: Unasked, Subject: "kubelet", Field: "failSwapOn", Message: "swap", Final: true, Evidence: []string{"E1121"}}
	for want, f := range map[string]Finding{
		`{"cause":"swap","subject":"kubelet","message":"swap is on","remedy":"turn it off","evidence":["E1121"],"next":"turn it off"}`: cause,
		`{"check":"Swap","level":"unchecked","message":"swap"}`:                                                                        check,
	} {
		if got, err := json.Marshal(f); err != nil || string(got) != want {
			t.Errorf("got %s (%v)\nwant %s", got, err, want)
		}
	}
}
