// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package fault

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Severity says what a finding means for a run.
type Severity string

const (
	// Note is good to know, such as an earlier run's files that this run keeps.
	Note Severity = "note"
	// Warning doesn't stop the run.
	Warning Severity = "warning"
	// Error stops it, unless its check is ignored.
	Error Severity = "error"
	// Skipped says why a check wasn't made: another check reports the problem, or there's nothing to check.
	Skipped Severity = "skipped"
	// Unasked says what wasn't looked at, mostly because a dry run sends nothing and writes to no disk.
	Unasked Severity = "unchecked"
	// Broken explains why a node doesn't work: a diagnosis found it, no check before a run.
	Broken Severity = "broken"
)

// Finding is a problem, or another fact, that a check or a diagnosis has found. No part holds a secret.
type Finding struct {
	// Name is the check, the rule of docs/upgrade-breakages.md or the cause of docs/diagnose.md. Users ignore findings by it.
	Name     string   `json:"check"`
	Severity Severity `json:"level"`
	// Final errors stay errors, whatever is ignored.
	Final bool `json:"-"`
	// Subject is the broken part, such as a static Pod, the kubelet or a file. Field is the flag or field there, if any.
	Subject string `json:"-"`
	Field   string `json:"-"`
	Message string `json:"message"`
	// Remedy is in the imperative; empty if there's nothing to do. Errors and warnings have one.
	Remedy string `json:"remedy,omitempty"`
	// Evidence is a few lines that show the problem.
	Evidence []string `json:"-"`
}

// NewFinding returns a finding with a formatted message. name may be empty in a check: the engine adds it.
func NewFinding(name string, severity Severity, remedy, format string, args ...any) Finding {
	return Finding{Name: name, Severity: severity, Message: fmt.Sprintf(format, args...), Remedy: remedy}
}

// Of makes an error of a check from err and its remedy.
func Of(err error) Finding {
	return Finding{Severity: Error, Message: err.Error(), Remedy: Remedy(err)}
}

// String is the message and, on an indented line of its own, the remedy. An error or warning begins in the form kubeadm's users
// search logs for; a cause has its evidence in between.
func (f Finding) String() string {
	switch f.Severity {
	case Error, Warning:
		return fmt.Sprintf("[%s %s]: %s", strings.ToUpper(string(f.Severity)), f.Name, f.Plain())
	case Broken:
		var evidence strings.Builder
		for _, line := range f.Evidence {
			evidence.WriteString("\n    | " + line)
		}
		return fmt.Sprintf("  [%s] %s: %s%s\n    what to do: %s", f.Name, f.Subject, f.Message, evidence.String(), f.Remedy)
	default:
		return f.Plain()
	}
}

// Plain is String without the name.
func (f Finding) Plain() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + "\n  " + f.Remedy
}

// MarshalJSON writes a check's finding as in slipway.upgrade, and a cause as in slipway.diagnose/v1, whose first readers know the
// remedy as next.
func (f Finding) MarshalJSON() ([]byte, error) {
	if f.Severity != Broken {
		type plain Finding
		return json.Marshal(plain(f))
	}
	return json.Marshal(struct {
		Cause    string   `json:"cause"`
		Subject  string   `json:"subject"`
		Message  string   `json:"message"`
		Remedy   string   `json:"remedy,omitempty"`
		Evidence []string `json:"evidence,omitempty"`
		Next     string   `json:"next"`
	}{f.Name, f.Subject, f.Message, f.Remedy, f.Evidence, f.Remedy})
}
