// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight holds named checks that only read: whether this host can
// become the node that the configuration asks for. All of them run, and all
// faults are reported. The names are those that kubeadm's users know from
// --ignore-preflight-errors.
package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
)

// View is what checks may ask of a host; host.Host is one. They cannot change
// it.
type View interface {
	host.Reader
	host.Remote
	host.DiskTester
}

// Severity says what a finding means for the run.
type Severity int

const (
	// Note is good to know: what an earlier run left and this one keeps.
	Note Severity = iota
	// Warning does not stop the run.
	Warning
	// Error does, unless its check is ignored.
	Error
	// Skipped tells why a check could not be made, where another check says
	// what is amiss, or where nothing is.
	Skipped
	// Unasked says what was not looked at because this is a dry run, which sends
	// nothing and writes to no disk.
	Unasked
)

// Finding is one thing that a check has to say: what, why, how to mend it.
type Finding struct {
	Check    string
	Severity Severity
	Message  string
}

// String has the form that kubeadm's users search logs for.
func (f Finding) String() string {
	switch f.Severity {
	case Error:
		return fmt.Sprintf("[ERROR %s]: %s", f.Check, f.Message)
	case Warning:
		return fmt.Sprintf("[WARNING %s]: %s", f.Check, f.Message)
	default:
		return f.Message
	}
}

// Check is one named question to the host.
type Check struct {
	Name string
	// Run changes nothing on the host. Nothing found means that all is well.
	// It need not fill in the name of its findings.
	Run func(ctx context.Context, h View) []Finding
	// Limit bounds the check; 0 is 10 seconds.
	Limit time.Duration
	// Asks says in a few words what is looked at, for docs/preflight.md.
	Asks string
}

const (
	defaultLimit = 10 * time.Second
	// together is how many checks run at the same time. Most wait for the
	// kernel, a program or the network rather than compute.
	together = 16
)

// Report is what all checks found, in the order of the checks. What was
// skipped is left out.
type Report struct {
	Notes    []Finding
	Warnings []Finding
	Errors   []Finding
	Unasked  []Finding
}

// Run asks all checks, as Ask does, and sorts what they found.
func Run(ctx context.Context, checks []Check, h View, ignore []string) Report {
	var r Report
	for _, result := range Ask(ctx, checks, h, ignore) {
		for _, f := range result.Findings {
			switch f.Severity {
			case Note:
				r.Notes = append(r.Notes, f)
			case Warning:
				r.Warnings = append(r.Warnings, f)
			case Error:
				r.Errors = append(r.Errors, f)
			case Unasked:
				r.Unasked = append(r.Unasked, f)
			case Skipped:
			}
		}
	}
	return r
}

func (c Check) findings(ctx context.Context, h View) []Finding {
	limit := c.Limit
	if limit == 0 {
		limit = defaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := c.Run(ctx, h)
	for i := range found {
		found[i].Check = c.Name
	}
	return found
}

func ignored(name string, ignore []string) bool {
	return slices.ContainsFunc(ignore, func(s string) bool {
		return strings.EqualFold(s, name) || strings.EqualFold(s, "all")
	})
}

// Err lists every error with the way to go on; nil if there is none.
func (r Report) Err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	return &FailedError{r.Errors}
}

// FailedError is a host that is not fit for what is asked.
type FailedError struct{ Findings []Finding }

func (e *FailedError) Error() string {
	var b strings.Builder
	b.WriteString("this host is not ready:\n")
	var names []string
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "\t%s\n", f)
		if !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	fmt.Fprintf(&b, "fix this and run the same command again; to go on regardless, add --ignore-preflight-errors=%s",
		strings.Join(names, ","))
	return b.String()
}

// sideBySide calls f for 0 to n-1, at most limit at the same time, and returns
// when all have ended.
func sideBySide(n, limit int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

func fault(format string, args ...any) []Finding {
	return []Finding{{Severity: Error, Message: fmt.Sprintf(format, args...)}}
}

func warn(format string, args ...any) []Finding {
	return []Finding{{Severity: Warning, Message: fmt.Sprintf(format, args...)}}
}

func skip(format string, args ...any) []Finding {
	return []Finding{{Severity: Skipped, Message: fmt.Sprintf(format, args...)}}
}

func unasked(format string, args ...any) []Finding {
	return []Finding{{Severity: Unasked, Message: fmt.Sprintf(format, args...)}}
}

func note(format string, args ...any) []Finding {
	return []Finding{{Severity: Note, Message: fmt.Sprintf(format, args...)}}
}
