// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/preflight"
)

// checkup is the output of `preflight`; see docs/preflight.md.
type checkup struct {
	metav1.TypeMeta `json:",inline"`

	// Before is the command that runs these checks first: init or join.
	Before string `json:"before"`
	Node   string `json:"node"`
	// Result is the worst result of all checks that weren't skipped: ok, warning or error.
	Result  string       `json:"result"`
	Seconds float64      `json:"seconds"`
	Checks  []checkEntry `json:"checks"`

	start time.Time
}

// checkEntry is a check's result: ok, warning, error or skipped. Message and remedy have a line for each finding, perhaps none.
type checkEntry struct {
	Name    string  `json:"name"`
	Result  string  `json:"result"`
	Message string  `json:"message,omitempty"`
	Remedy  string  `json:"remedy,omitempty"`
	Seconds float64 `json:"seconds"`
}

func (c *checkup) DeepCopyObject() runtime.Object { return new(*c) }

func newCheckup(before string) *checkup {
	return &checkup{
		TypeMeta: metav1.TypeMeta{APIVersion: "slipway.preflight/v1", Kind: "PreflightResult"},
		Before:   before, Result: "ok", start: time.Now(),
	}
}

func (c *checkup) add(name, result, message, remedy string, took time.Duration) {
	c.Checks = append(c.Checks, checkEntry{name, result, message, remedy, milli(took)})
	if result == "error" || result == "warning" && c.Result == "ok" {
		c.Result = result
	}
}

func (c *checkup) addAll(results []preflight.Result) {
	for _, r := range results {
		message, remedy := r.Text()
		c.add(r.Check, r.Outcome(), message, remedy, r.Took)
	}
}

// milli is a duration in seconds, to the millisecond.
func milli(d time.Duration) float64 { return float64(d.Milliseconds()) / 1000 }

// report prints all checks. It returns an error if any check found an error.
func (c *checkup) report(g *cli.Globals, out *cli.OutputOptions) error {
	c.Seconds = milli(time.Since(c.start))
	if err := out.Print(g, c, c.text); err != nil {
		return err
	}
	names := c.named("error")
	if len(names) == 0 {
		return nil
	}
	return cli.ExitError{Code: 1, Message: fmt.Sprintf("%s would refuse to start because of %s", c.Before, strings.Join(names, ", "))}
}

func (c *checkup) named(result string) []string {
	var names []string
	for _, e := range c.Checks {
		if e.Result == result {
			names = append(names, e.Name)
		}
	}
	return names
}

func (c *checkup) text(w io.Writer) error {
	var b strings.Builder
	for _, e := range c.Checks {
		fmt.Fprintf(&b, "%-8s %s (%.3fs)\n", e.Result, e.Name, e.Seconds)
		for line := range strings.Lines(e.Message) {
			fmt.Fprintf(&b, "         %s\n", strings.TrimSpace(line))
		}
		for line := range strings.Lines(e.Remedy) {
			fmt.Fprintf(&b, "           %s\n", strings.TrimSpace(line))
		}
	}
	fmt.Fprintf(&b, "%d checks in %.3fs: %d errors, %d warnings, %d skipped\n", len(c.Checks), c.Seconds,
		len(c.named("error")), len(c.named("warning")), len(c.named("skipped")))
	_, err := io.WriteString(w, b.String())
	return err
}
