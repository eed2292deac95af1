// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package preflight holds named checks of whether this host can become the node in the configuration. Checks read the host, send
// probes, and may test a disk by writing to it, but leave nothing behind. Each command has its list (Init, JoinWorker, Prepare
// and others); Run runs all of it and sorts the Findings into a Report. kubeadm's users know the names from
// --ignore-preflight-errors.
package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

// View is the part of a host that checks may ask; host.Host implements it. They can't change the host.
type View interface {
	host.Reader
	host.Remote
	host.DiskTester
}

// Severity says what a finding means for the run.
type Severity int

const (
	// Note is good to know, such as an earlier run's files that this run keeps.
	Note Severity = iota
	// Warning doesn't stop the run.
	Warning
	// Error stops it, unless its check is ignored.
	Error
	// Skipped says why a check wasn't made: another check reports the problem, or there's nothing to check.
	Skipped
	// Unasked says what wasn't looked at, mostly because a dry run sends nothing and writes to no disk.
	Unasked
)

// Finding is one result of a check. Errors and warnings have a remedy.
type Finding struct {
	Check    string
	Severity Severity
	// Final errors stay errors, whatever is ignored.
	Final bool
	fault.Fault
}

// String begins in the form kubeadm's users search logs for.
func (f Finding) String() string {
	switch f.Severity {
	case Error:
		return fmt.Sprintf("[ERROR %s]: %s", f.Check, f.Fault)
	case Warning:
		return fmt.Sprintf("[WARNING %s]: %s", f.Check, f.Fault)
	default:
		return f.Fault.String()
	}
}

// Check is one named question to the host.
type Check struct {
	Name string
	// Run changes nothing on the host. No findings means all is well. It needn't set the check's name in its findings.
	Run func(ctx context.Context, h View) []Finding
	// Limit bounds the check; 0 is 10 seconds.
	Limit time.Duration
	// Asks says briefly what's checked, for docs/preflight.md.
	Asks string
}

const (
	// DefaultLimit bounds a check without a limit of its own.
	DefaultLimit = 10 * time.Second
	// together is how many checks run at the same time. Most of them wait for the kernel, a program or the network.
	together = 16
)

// Report holds all checks' findings, in the order of the checks. It leaves out skipped checks.
type Report struct {
	Notes    []Finding
	Warnings []Finding
	Errors   []Finding
	Unasked  []Finding
}

// Run runs all checks, as Ask does, and sorts their findings by severity.
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
		limit = DefaultLimit
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found := c.Run(ctx, h)
	for i := range found {
		if found[i].Check == "" || !found[i].Final { // an ignorable finding is ignored by its check's name
			found[i].Check = c.Name
		}
	}
	return found
}

// Err returns all errors as a FailedError, or nil if there are none.
func (r Report) Err() error {
	if len(r.Errors) == 0 {
		return nil
	}
	return &FailedError{r.Errors}
}

// FailedError reports that checks found errors on this host.
type FailedError struct{ Findings []Finding }

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
	const remedy = "fix these problems and run the same command again"
	var names []string
	for _, f := range e.Findings {
		if f.Final {
			return remedy
		}
		if !slices.Contains(names, f.Check) {
			names = append(names, f.Check)
		}
	}
	return remedy + "; " + howToIgnore(names)
}

// sideBySide calls f for 0 to n-1, at most limit of them at the same time, and returns when all have returned.
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

// findings is a list that a remedy can be added to.
type findings []Finding

func newFindings(s Severity, format string, args ...any) findings {
	return findings{{Severity: s, Fault: fault.Fault{Message: fmt.Sprintf(format, args...)}}}
}

func fail(format string, args ...any) findings    { return newFindings(Error, format, args...) }
func warn(format string, args ...any) findings    { return newFindings(Warning, format, args...) }
func skip(format string, args ...any) findings    { return newFindings(Skipped, format, args...) }
func unasked(format string, args ...any) findings { return newFindings(Unasked, format, args...) }
func note(format string, args ...any) findings    { return newFindings(Note, format, args...) }

func (list findings) remedy(format string, args ...any) findings {
	for i := range list {
		list[i].Remedy = fmt.Sprintf(format, args...)
	}
	return list
}
