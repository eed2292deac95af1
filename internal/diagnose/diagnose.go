// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnose says why a node does not work: it looks at the kubelet's
// unit and journal, the static Pods and their containers, certificates, ports,
// names and disks, and names what is wrong, with the lines that show it and
// the next step. It only reads, and needs no cluster.
package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// View is what is looked at of a host; host.Host is one. Nothing here can
// change it.
type View interface {
	host.Reader
	host.Remote
}

// Target says what to look at, and since when.
type Target struct {
	// Socket is the container runtime's.
	Socket string
	// Kubelet is the kubelet's folder, Kubeconfigs that of kubeconfig files.
	Kubelet, Kubeconfigs string
	// Manifests is the folder of static Pods; empty while they may still be
	// written.
	Manifests string
	// Since leaves older lines of the kubelet's journal out, and containers
	// that ended before.
	Since time.Time
	// Waiting tells that something is being waited for: then only what shows
	// in a log or a state counts. Otherwise everything that is wrong does, also
	// what did no harm yet.
	Waiting bool
	// began is when a watch did; what was insisted on before may be mended.
	began time.Time
}

// Finding is one cause that was found.
type Finding struct {
	// Cause is its name in the table of causes.
	Cause string `json:"cause"`
	// Subject is what it keeps from working: a static Pod, the kubelet, a file.
	Subject string `json:"subject"`
	// Message says what happened.
	Message string `json:"message"`
	// Evidence are the lines that show it, at most a few, without secrets.
	Evidence []string `json:"evidence,omitempty"`
	// Next says what to do.
	Next string `json:"next"`

	// lasts is for how long the cause must be seen, look after look, before it
	// is taken for a lasting one; never for one that may always pass.
	lasts time.Duration
}

// never is the patience with what may still get better.
const never time.Duration = -1

// String is the finding for people, in lines.
func (f Finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  [%s] %s: %s", f.Cause, f.Subject, f.Message)
	for _, line := range f.Evidence {
		fmt.Fprintf(&b, "\n    | %s", line)
	}
	fmt.Fprintf(&b, "\n    what to do: %s", f.Next)
	return b.String()
}

// Error is an error whose causes were found.
type Error struct {
	Err      error
	Findings []Finding
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", e.Err)
	for _, f := range e.Findings {
		fmt.Fprintf(&b, "\n%s", f)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// Causes gives the findings to the events that programs read.
func (e *Error) Causes() any { return e.Findings }

// Cause is a row of the table: a name, and how it is recognised.
type Cause struct {
	Name string
	// Summary says what is wrong, in a few words.
	Summary string
	// fallback marks what is said only where nothing better is known.
	fallback bool
	look     func(s *scene) []Finding
}

// Run looks once and returns what it found: of each cause and subject one
// finding, in the order of the table.
func Run(ctx context.Context, h View, t Target) []Finding {
	var j journal
	return look(ctx, h, t, &j)
}

// look is Run with the journal that earlier looks have read.
func look(ctx context.Context, h View, t Target, j *journal) []Finding {
	j.read(ctx, h, t.Since)
	s := observe(ctx, h, t, j.entries)
	found, users := []Finding{}, []Finding{}
	for _, c := range Causes() {
		if c.fallback && len(found) > 0 {
			continue
		}
		for _, f := range c.look(s) {
			f.Cause = c.Name
			list := &found
			if p := s.pod(f.Subject); p != nil && !p.needed() {
				list, f.lasts = &users, never
			}
			if !slices.ContainsFunc(*list, func(g Finding) bool { return g.key() == f.key() }) {
				*list = append(*list, f.shown())
			}
		}
	}
	if t.Waiting && len(found) > 0 {
		return found
	}
	return append(found, users...)
}

func (f Finding) key() string { return f.Cause + " " + f.Subject }

const (
	// evidenceLines and evidenceWidth keep evidence readable.
	evidenceLines = 4
	evidenceWidth = 400
)

// shown is the finding as it may be shown: short, without secrets.
func (f Finding) shown() Finding {
	f.Message, f.Next = redact.Text(f.Message), redact.Text(f.Next)
	var lines []string
	for _, line := range f.Evidence[max(0, len(f.Evidence)-evidenceLines):] {
		line = strings.TrimSpace(redact.Text(unpacked(line)))
		if len(line) > evidenceWidth {
			line = strings.ToValidUTF8(line[:evidenceWidth], "") + " …"
		}
		if line != "" {
			lines = append(lines, line)
		}
	}
	f.Evidence = lines
	return f
}
