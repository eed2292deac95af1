// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"strings"
	"time"
)

// Outcome is how a check ended, in one word.
type Outcome string

// The outcomes, the worst of a check's findings each.
const (
	OK            Outcome = "ok"
	WithWarning   Outcome = "warning"
	WithError     Outcome = "error"
	SkippedResult Outcome = "skipped"
)

// Result is a check and what it found.
type Result struct {
	Check    string
	Findings []Finding
	Took     time.Duration
}

// Outcome is the worst of what was found. Only a check that found nothing else
// is skipped.
func (r Result) Outcome() Outcome {
	worst := OK
	for i, f := range r.Findings {
		switch {
		case f.Severity == Error:
			return WithError
		case f.Severity == Warning:
			worst = WithWarning
		case (f.Severity == Skipped || f.Severity == Unasked) && i == 0:
			worst = SkippedResult
		case worst == SkippedResult:
			worst = OK
		}
	}
	return worst
}

// Message is all that was found, a line each.
func (r Result) Message() string {
	var lines []string
	for _, f := range r.Findings {
		lines = append(lines, f.Message)
	}
	return strings.Join(lines, "\n")
}

// Ask asks all checks, side by side, and returns in their order what they
// found. The errors of those that ignore names (in any case; "all" for every
// one) become warnings.
func Ask(ctx context.Context, checks []Check, h View, ignore []string) []Result {
	results := make([]Result, len(checks))
	sideBySide(len(checks), together, func(i int) {
		start := time.Now()
		found := checks[i].findings(ctx, h)
		results[i] = Result{Check: checks[i].Name, Findings: found, Took: time.Since(start)}
		if !ignored(checks[i].Name, ignore) {
			return
		}
		for k := range found {
			if found[k].Severity == Error {
				found[k].Severity = Warning
			}
		}
	})
	return results
}
