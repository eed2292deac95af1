// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
)

type Result struct {
	Check    string
	Findings []fault.Finding
	Took     time.Duration
}

// Outcome is the worst severity found, or ok. A check counts as skipped only if it found nothing else.
func (r Result) Outcome() string {
	worst := "ok"
	for i, f := range r.Findings {
		switch {
		case f.Severity == fault.Error:
			return "error"
		case f.Severity == fault.Warning:
			worst = "warning"
		case (f.Severity == fault.Skipped || f.Severity == fault.Unasked) && i == 0:
			worst = "skipped"
		case worst == "skipped":
			worst = "ok"
		}
	}
	return worst
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

// Ask runs all checks side by side and returns their results in order. Errors of checks in ignore become warnings.
func Ask(ctx context.Context, checks []Check, h View, ignore []string) []Result {
	results := make([]Result, len(checks))
	sideBySide(len(checks), together, func(i int) {
		start := time.Now()
		found := checks[i].findings(ctx, h)
		results[i] = Result{Check: checks[i].Name, Findings: found, Took: time.Since(start)}
		if !fault.Ignored(checks[i].Name, ignore) {
			return
		}
		for k := range found {
			if found[k].Severity == fault.Error && !found[k].Final {
				found[k].Severity = fault.Warning
			}
		}
	})
	return results
}
