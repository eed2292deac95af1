// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight has the checks that run before a command changes anything. Each has a name, which kubeadm's users know from
// --ignore-preflight-errors. Every command has a list of them (Init, JoinWorker, Prepare and others); Run runs a list and sorts
// the findings into a Report. A check may read the host, send probes and test writes to a disk, but it leaves nothing behind. A
// check writes its own remedies: fail(…).remedy(…). Most checks of an upgrade are in phases/upgrade.
package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/parallel"
)

// View is the part of a host that checks may ask; host.Host implements it. They can't change the host.
type View interface {
	host.Reader
	host.Remote
	host.DiskTester
}

// Check is one named question to the host.
type Check struct {
	Name string
	// Run changes nothing on the host. No findings means all is well. It needn't set the check's name in its findings.
	Run func(ctx context.Context, h View) []fault.Finding
	// Limit bounds the check; 0 is DefaultTimeout.
	Limit time.Duration
	// Description says briefly what's checked, for docs/preflight.md.
	Description string
}

// with makes a check of a function with one more argument, mostly the node or its machine.
func with[T any](v T, ask func(context.Context, View, T) []fault.Finding) func(context.Context, View) []fault.Finding {
	return func(ctx context.Context, h View) []fault.Finding { return ask(ctx, h, v) }
}

const (
	// defaultTimeout bounds a check without a limit of its own. The parts of a host have limits of their own, which suit slow
	// hosts.
	defaultTimeout = 3 * time.Minute
	// maxConcurrentChecks is how many checks run at the same time. Most of them wait for the kernel, a program or the network.
	maxConcurrentChecks = 16
)

// Report holds all checks' findings by severity, in the order of the checks.
type Report map[fault.Severity][]fault.Finding

// Run runs all checks, as Ask does, and sorts their findings by severity.
func Run(ctx context.Context, checks []Check, h View, ignore []string) Report {
	r := Report{}
	for _, result := range RunAll(ctx, checks, h, ignore) {
		for _, f := range result.Findings {
			r[f.Severity] = append(r[f.Severity], f)
		}
	}
	return r
}

func (c Check) findings(ctx context.Context, h View) []fault.Finding {
	limit := c.Limit
	if limit == 0 {
		limit = defaultTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := c.Run(ctx, h)
	for i := range found {
		if found[i].Name == "" || !found[i].Final { // an ignorable finding is ignored by its check's name
			found[i].Name = c.Name
		}
	}
	return found
}

// Err returns all errors as a FailedError, or nil if there are none.
func (r Report) Err() error {
	if len(r[fault.Error]) == 0 {
		return nil
	}
	return &FailedError{r[fault.Error]}
}

// FailedError reports that checks found errors on this host.
type FailedError struct{ Findings []fault.Finding }

// Error lists the findings, each with its remedy on a line of its own.
func (e *FailedError) Error() string {
	var b strings.Builder
	b.WriteString("this host is not ready:")
	for _, f := range e.Findings {
		b.WriteString("\n\t" + strings.ReplaceAll(f.String(), "\n", "\n\t"))
	}
	return b.String()
}

// Remedy is the remedy for all findings together.
func (e *FailedError) Remedy() string {
	return strings.TrimSuffix("fix these problems and run the same command again; "+fault.HowToIgnore(e.Findings), "; ")
}

// findings is a list that a remedy can be added to.
type findings []fault.Finding

func newFindings(s fault.Severity, format string, args ...any) findings {
	return findings{fault.NewFinding("", s, "", format, args...)}
}

func fail(format string, args ...any) findings    { return newFindings(fault.Error, format, args...) }
func warn(format string, args ...any) findings    { return newFindings(fault.Warning, format, args...) }
func skip(format string, args ...any) findings    { return newFindings(fault.Skipped, format, args...) }
func unasked(format string, args ...any) findings { return newFindings(fault.Unasked, format, args...) }
func note(format string, args ...any) findings    { return newFindings(fault.Note, format, args...) }

func (list findings) remedy(format string, args ...any) findings {
	for i := range list {
		list[i].Remedy = fmt.Sprintf(format, args...)
	}
	return list
}

// Result is what a check has found.
type Result struct {
	Check    string
	Findings []fault.Finding
	Took     time.Duration
}

// OK is the outcome of a check that found no problem.
const OK fault.Severity = "ok"

// Outcome is fault.Error or fault.Warning, the worst that was found, or OK, or fault.Skipped if it found nothing else.
func (r Result) Outcome() fault.Severity {
	worst := OK
	for i, f := range r.Findings {
		switch {
		case f.Severity == fault.Error:
			return fault.Error
		case f.Severity == fault.Warning:
			worst = fault.Warning
		case (f.Severity == fault.Skipped || f.Severity == fault.Unasked) && i == 0:
			worst = fault.Skipped
		case worst == fault.Skipped:
			worst = OK
		}
	}
	return worst
}

// MarshalJSON writes a check of a PreflightResult; see docs/preflight.md.
func (r Result) MarshalJSON() ([]byte, error) {
	message, remedy := r.Text()
	return json.Marshal(struct {
		Name    string         `json:"name"`
		Result  fault.Severity `json:"result"`
		Message string         `json:"message,omitempty"`
		Remedy  string         `json:"remedy,omitempty"`
		Seconds float64        `json:"seconds"`
	}{r.Check, r.Outcome(), message, remedy, float64(r.Took.Milliseconds()) / 1000})
}

// Text sums up the findings: a line for each message, and a line for each different remedy.
func (r Result) Text() (message, remedy string) {
	var messages, remedies []string
	for _, f := range r.Findings {
		messages = append(messages, f.Message)
		if f.Remedy != "" && !slices.Contains(remedies, f.Remedy) {
			remedies = append(remedies, f.Remedy)
		}
	}
	return strings.Join(messages, "\n"), strings.Join(remedies, "\n")
}

// RunAll runs all checks side by side and returns their results in order. Errors of checks in ignore become warnings.
func RunAll(ctx context.Context, checks []Check, h View, ignore []string) []Result {
	return parallel.Map(checks, maxConcurrentChecks, func(c Check) Result {
		start := time.Now()
		found := c.findings(ctx, h)
		took := time.Since(start)
		ignored := fault.Ignored(c.Name, ignore)
		for i := range found {
			if ignored && found[i].Severity == fault.Error && !found[i].Final {
				found[i].Severity = fault.Warning
			}
		}
		return Result{Check: c.Name, Findings: found, Took: took}
	})
}
