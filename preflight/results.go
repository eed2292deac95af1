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

// Outcome is the result of a check in one word.
type Outcome string

const (
	OK            Outcome = "ok"
	WithWarning   Outcome = "warning"
	WithError     Outcome = "error"
	SkippedResult Outcome = "skipped"
)

// Result is a check with its findings.
type Result struct {
	Check    string
	Findings []Finding
	Took     time.Duration
}

// Outcome is the worst severity found. A check counts as skipped only if it found nothing else.
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

// Fault sums up the findings: a line for each message, and a line for each different remedy.
func (r Result) Fault() fault.Fault {
	var messages, remedies []string
	for _, f := range r.Findings {
		messages = append(messages, f.Message)
		if f.Remedy != "" && !slices.Contains(remedies, f.Remedy) {
			remedies = append(remedies, f.Remedy)
		}
	}
	return fault.Fault{Message: strings.Join(messages, "\n"), Remedy: strings.Join(remedies, "\n")}
}

// Ask runs all checks side by side and returns their results in order. ignore names checks whose errors become warnings, in upper
// or lower case; "all" stands for every check that doesn't guard data or access.
func Ask(ctx context.Context, checks []Check, h View, ignore []string) []Result {
	results := make([]Result, len(checks))
	sideBySide(len(checks), together, func(i int) {
		start := time.Now()
		found := checks[i].findings(ctx, h)
		results[i] = Result{Check: checks[i].Name, Findings: found, Took: time.Since(start)}
		if !Ignored(checks[i].Name, ignore) {
			return
		}
		for k := range found {
			if found[k].Severity == Error && !found[k].Final {
				found[k].Severity = Warning
			}
		}
	})
	return results
}

// These checks guard data and access. They can be ignored only by name: scripts pass `all` for things like too little memory, and
// that must not cost a cluster its quorum or its Secrets. An upgrade's StaticPodProtection can't be ignored at all.
const (
	EtcdQuorum          = "EtcdQuorum"
	EtcdOtherMembers    = "EtcdOtherMembers"
	StaticPodProtection = "StaticPodProtection"
)

func coveredByAll(name string) bool {
	return !slices.Contains([]string{EtcdQuorum, EtcdOtherMembers, StaticPodProtection}, name)
}

// Ignored reports whether a check's errors count as warnings.
func Ignored(name string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(s string) bool {
		return strings.EqualFold(s, name) || strings.EqualFold(s, "all") && coveredByAll(name)
	})
}

func howToIgnore(names []string) string {
	flag := "--ignore-preflight-errors=" + strings.Join(names, ",")
	if guards := slices.DeleteFunc(slices.Clone(names), coveredByAll); len(guards) > 0 {
		return "to continue regardless, use " + flag + "; `all` does not cover " + strings.Join(guards, " and ")
	}
	return "to continue regardless, add " + flag
}
