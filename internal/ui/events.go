// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// eventsVersion is the version of docs/events.schema.json. It changes when a field is removed or changes meaning, but not when a
// field is added.
const eventsVersion = "slipway.events/v1"

// Events reports a run to a program: one JSON object per line, as described in docs/machine-output.md and
// docs/events.schema.json. Only the last event, the result, may contain a secret.
type Events struct {
	*events

	phase string // empty outside any phase
}

type events struct {
	program, version, command string

	mu      sync.Mutex
	out     io.Writer
	began   time.Time
	started bool
	outcome Outcome
}

// event is one line. Its name determines its fields.
type event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"`
	Schema  string    `json:"schema,omitempty"`
	Program string    `json:"program,omitempty"`
	Version string    `json:"version,omitempty"`
	Command string    `json:"command,omitempty"`
	Phase   string    `json:"phase,omitempty"`
	Message string    `json:"message,omitempty"`
	Remedy  string    `json:"remedy,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Seconds *float64  `json:"seconds,omitempty"`
	Error   string    `json:"error,omitempty"`
	// Causes are the causes found by the diagnosis: see docs/diagnose.md.
	Causes any `json:"causes,omitempty"`
}

type diagnosed interface{ Causes() any }

// NewEvents writes the events of a run of command to out. The run begins now, but nothing is written until there's something to
// report.
func NewEvents(program, version, command string, out io.Writer) *Events {
	return &Events{events: &events{program: program, version: version, command: command, out: out, began: time.Now()}}
}

func (e *Events) Start(phase string) (UI, func(error)) {
	since := time.Now()
	e.emit(event{Event: "phase-started", Phase: phase})
	return &Events{events: e.events, phase: phase}, func(err error) {
		ended := event{Event: "phase-finished", Phase: phase, Seconds: seconds(since)}
		if err != nil {
			ended.Event, ended.Error, ended.Remedy = "phase-failed", err.Error(), fault.Remedy(err)
			var d diagnosed
			if errors.As(err, &d) {
				ended.Causes = d.Causes()
			}
		}
		e.emit(ended)
	}
}

func (e *Events) Skip(phase, reason string) {
	e.emit(event{Event: "phase-skipped", Phase: phase, Reason: reason})
}

func (e *Events) Printf(format string, args ...any) {
	e.emit(event{Event: "progress", Phase: e.phase, Message: fmt.Sprintf(format, args...)})
}

// Nextf reports its line as progress.
func (e *Events) Nextf(format string, args ...any) { e.Printf(format, args...) }

func (e *Events) Warnf(format string, args ...any) { e.Warn(fmt.Sprintf(format, args...), "") }

func (e *Events) Warn(message, remedy string) {
	e.emit(event{Event: "warning", Phase: e.phase, Message: message, Remedy: remedy})
}

// Result does nothing: its text is for people, and may contain secrets. The last event has the values.
func (e *events) Result(string) {}

// Outcome keeps o for the last event.
func (e *events) Outcome(o Outcome) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outcome.add(o)
}

// emit writes an event, after the start of the run if it's the first.
func (e *events) emit(ev event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	ev.Time = time.Now()
	e.write(ev)
}

func (e *events) begin() {
	if e.started {
		return
	}
	e.started = true
	e.write(event{Time: e.began, Event: "run-started", Schema: eventsVersion,
		Program: e.program, Version: e.version, Command: e.command})
}

// write writes a line in one piece, so that a reader sees only whole events.
func (e *events) write(line any) {
	data, err := json.Marshal(line)
	if err != nil {
		panic(err) // it has only texts and numbers
	}
	_, _ = e.out.Write(append(data, '\n'))
}

func seconds(since time.Time) *float64 {
	s := float64(time.Since(since).Milliseconds()) / 1000
	return &s
}
