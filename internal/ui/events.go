// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
)

// eventsVersion is docs/events.schema.json's. It changes when a field goes or changes meaning, but not when a field is added.
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

// NewEvents writes the events of a run of command to out. The run begins now, but the first event comes with its first report.
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

// Secret is a value that only a run's last event may contain.
type Secret interface {
	Reveal() string
}

// Outcome is the result of a run, for the next command to use. It leaves out values the user wants hidden.
type Outcome struct {
	// CACertHashes pin the cluster's CA for joining nodes: sha256:HEX of each certificate's public key.
	CACertHashes []string
	// Token lets a node join, and CertificateKey makes it a control plane.
	Token, CertificateKey Secret
	// JoinCommand and ControlPlaneJoinCommand are complete, each on one line.
	JoinCommand, ControlPlaneJoinCommand Secret
}

func (all *Outcome) add(o Outcome) {
	if o.CACertHashes != nil {
		all.CACertHashes = o.CACertHashes
	}
	all.Token, all.CertificateKey = cmp.Or(o.Token, all.Token), cmp.Or(o.CertificateKey, all.CertificateKey)
	all.JoinCommand = cmp.Or(o.JoinCommand, all.JoinCommand)
	all.ControlPlaneJoinCommand = cmp.Or(o.ControlPlaneJoinCommand, all.ControlPlaneJoinCommand)
}

// Summary is the command's knowledge of a run, beyond its phases' messages.
type Summary struct {
	// Node is the node's name, Endpoint the host:port of the cluster's API; empty if the run ended before they were known.
	Node, Endpoint string
	ControlPlane   bool
	Files          []File // the files changed by the run, in order
}

// File is a file that a run changed. Change is created, changed or removed.
type File struct {
	Path   string `json:"path"`
	Change string `json:"change"`
}

// result is the last line. It always has all of its fields: a value that's unknown, doesn't exist or must not be shown is null.
type result struct {
	Time                    time.Time `json:"time"`
	Event                   string    `json:"event"`
	Command                 string    `json:"command"`
	Succeeded               bool      `json:"succeeded"`
	Error                   *string   `json:"error"`
	Remedy                  *string   `json:"remedy"`
	Seconds                 float64   `json:"seconds"`
	Node                    *string   `json:"node"`
	Role                    *string   `json:"role"`
	Endpoint                *string   `json:"endpoint"`
	CACertHashes            []string  `json:"caCertHashes"`
	Token                   *string   `json:"token"`
	CertificateKey          *string   `json:"certificateKey"`
	JoinCommand             *string   `json:"joinCommand"`
	ControlPlaneJoinCommand *string   `json:"controlPlaneJoinCommand"`
	Files                   []File    `json:"files"`
}

// End writes the last event: the run's success or failure, and its results.
func (e *Events) End(s Summary, failure error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.begin()
	o := e.outcome
	r := result{
		Time: time.Now(), Event: "result", Command: e.command, Succeeded: failure == nil, Seconds: *seconds(e.began),
		Node: orNull(s.Node), Endpoint: orNull(s.Endpoint), CACertHashes: append([]string{}, o.CACertHashes...),
		Token: revealed(o.Token), CertificateKey: revealed(o.CertificateKey),
		JoinCommand: revealed(o.JoinCommand), ControlPlaneJoinCommand: revealed(o.ControlPlaneJoinCommand),
		Files: append([]File{}, s.Files...),
	}
	if failure != nil {
		r.Error, r.Remedy = orNull(failure.Error()), orNull(fault.Remedy(failure))
	}
	if s.Node != "" {
		r.Role = orNull(role(s.ControlPlane))
	}
	e.write(r)
}

func role(controlPlane bool) string {
	if controlPlane {
		return "control-plane"
	}
	return "worker"
}

func orNull(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func revealed(s Secret) *string {
	if s == nil {
		return nil
	}
	return orNull(s.Reveal())
}
