// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"encoding/json"
	"maps"
	"testing"
)

// TestWrongEvents: the schema refuses a line that doesn't match the documented events.
func TestWrongEvents(t *testing.T) {
	s, err := Events()
	if err != nil {
		t.Fatal(err)
	}
	type m = map[string]any
	started := m{"time": "2026-01-01T00:00:00Z", "event": "run-started", "schema": "slipway.events/v1", "program": "slipway", "version": "v1", "command": "init"}
	finished := m{"time": "2026-01-01T00:00:00.5Z", "event": "phase-finished", "phase": "certs/ca", "seconds": 0.5}
	result := m{"time": "2026-01-01T00:00:00Z", "event": "result", "command": "init", "succeeded": true, "error": nil, "remedy": nil, "seconds": 1,
		"node": "cp-1", "role": "control-plane", "endpoint": "192.0.2.1:6443", "caCertHashes": []any{}, "token": nil, "certificateKey": nil,
		"joinCommand": nil, "controlPlaneJoinCommand": nil, "files": []any{m{"path": "/a", "change": "created"}}}
	tests := []struct {
		name   string
		event  m
		change m // nil takes a field away
		wrong  bool
	}{
		{"started", started, m{}, false},
		{"another version", started, m{"schema": "slipway.events/v2"}, true},
		{"no command", started, m{"command": nil}, true},
		{"finished", finished, m{}, false},
		{"unknown event", finished, m{"event": "phase-ended"}, true},
		{"unknown field", finished, m{"message": "x"}, true},
		{"duration as text", finished, m{"seconds": "0.5s"}, true},
		{"negative duration", finished, m{"seconds": -1}, true},
		{"no phase", finished, m{"phase": nil}, true},
		{"phase with words", finished, m{"phase": "certs ca"}, true},
		{"time without a zone", finished, m{"time": "2026-01-01T00:00:00"}, true},
		{"result", result, m{}, false},
		{"half a token", result, m{"token": "abcdef"}, true},
		{"hash without its kind", result, m{"caCertHashes": []any{"ab"}}, true},
		{"endpoint without a port", result, m{"endpoint": "192.0.2.1"}, true},
		{"success with an error", result, m{"error": "no"}, true},
		{"failure without an error", result, m{"succeeded": false}, true},
		{"file without a change", result, m{"files": []any{m{"path": "/a"}}}, true},
		{"no files", result, m{"files": nil}, true},
		{"a secret field", result, m{"password": "x"}, true},
	}
	for _, tt := range tests {
		event := maps.Clone(tt.event)
		for name, value := range tt.change {
			event[name] = value
			if value == nil {
				delete(event, name)
			}
		}
		data, err := json.Marshal(event)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(data); (err != nil) != tt.wrong {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if n, err := s.CheckLines([]byte("{}\n")); err == nil || n != 0 {
		t.Errorf("%d lines, %v", n, err)
	}
}

func TestWrongPlans(t *testing.T) {
	s, err := Plan()
	if err != nil {
		t.Fatal(err)
	}
	for step, wrong := range map[string]bool{
		`{"action":"write","path":"/a","mode":"0600","change":"create","content":"x"}`:               false,
		`{"action":"write","path":"/a","mode":"0600","change":"create","secret":true}`:               false,
		`{"action":"write","path":"/a","mode":"0600","secret":true,"content":"x","change":"create"}`: true,
		`{"action":"write","path":"/a","change":"create"}`:                                           true,
		`{"action":"write","path":"/a","mode":"600","change":"create"}`:                              true,
		`{"action":"start-unit","unit":"kubelet.service"}`:                                           false,
		`{"action":"start-unit"}`:                          true,
		`{"action":"start unit","unit":"kubelet.service"}`: true,
		`{"path":"/a"}`:                                    true,
	} {
		err := s.Check([]byte(`{"schema":"slipway.plan/v1","command":"init","steps":[` + step + `]}`))
		if (err != nil) != wrong {
			t.Errorf("%s: %v", step, err)
		}
	}
}
