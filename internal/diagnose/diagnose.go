// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package diagnose finds out why a node doesn't work. It looks at the kubelet's unit and journal, static Pods and their
// containers, certificates, ports, names and disks, and shows each problem's evidence and remedy. It only reads, without a
// cluster.
//
// Run looks once. Guard watches a wait, and ends it once a cause is known that waiting can't fix. Causes (causes.go) is the table of
// known causes: each names the function that looks for it in an observation, the facts collected by a look.
package diagnose

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// View is the part of host.Host that a diagnosis needs. Nothing in it can change the host.
type View interface {
	host.Reader
	host.Remote
}

// Target says where to look, and how far back.
type Target struct {
	// Socket is the container runtime's.
	Socket string
	// Kubelet is the kubelet's directory, Kubeconfigs the directory of the kubeconfig files.
	Kubelet, Kubeconfigs string
	// Manifests is the directory of static Pods; empty while a phase may still write them.
	Manifests string
	// Serving is the serving certificate that the kubelet has from the cluster; empty if it signs its own, and while a phase
	// waits, which never needs it.
	Serving string
	// ClientCA has the CAs whose clients the kubelet accepts; empty if that's unknown, and while a phase waits, which never needs it.
	ClientCA string
	// Since excludes older lines of the kubelet's journal, and containers that ended earlier.
	Since time.Time
	// Etcd asks the members of this control plane's etcd for their health; nil if it must not ask them, as while a phase waits.
	Etcd func(context.Context) ([]etcd.Health, error)
	// Waiting is set while a phase waits for something. Then a problem counts only if it shows in a log or a state.
	Waiting bool
	// began is the start of a watch, and limit how long it may last. Problems logged repeatedly before it may have been fixed.
	began time.Time
	limit time.Duration
}

// symptom is a finding: a cause with its subject and evidence.
type symptom struct {
	fault.Finding
	// minDuration is how long look after look must find the cause before it ends a wait; never if it may pass by itself.
	minDuration time.Duration
}

// never marks a cause that never ends a wait.
const never time.Duration = -1

// Error is an error with its causes.
type Error struct {
	Err      error
	Findings []fault.Finding
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

// Remedy returns the remedy of the error itself, as each finding shows its own.
func (e *Error) Remedy() string {
	if remedy := fault.Remedy(e.Err); remedy != "" {
		return remedy
	}
	return "fix the problem and run the same command again"
}

// Causes returns the findings for events.
func (e *Error) Causes() any { return e.Findings }

// Cause is a problem that a diagnosis recognizes: a row of causes.go.
type Cause struct {
	Name string
	// Summary describes the problem in a few words.
	Summary string
	// fallback causes are reported only if there's no other.
	fallback bool
	look     func(o *observation) []symptom
}

// Run looks once, and returns a finding for each cause and subject, in the table's order. The error says where it couldn't look: there
// may be more causes.
func Run(ctx context.Context, h View, t Target) ([]fault.Finding, error) {
	found, err := look(ctx, h, t, &journal{}, nil)
	return findings(found), err
}

func findings(list []symptom) []fault.Finding {
	found := make([]fault.Finding, len(list))
	for i, s := range list {
		found[i] = s.Finding
	}
	return found
}

// look is Run with the journal read by earlier looks, and notes the progress of a wait; p is nil outside one. It finds nothing if ctx
// ends: it may then take a late answer for a fault.
func look(ctx context.Context, h View, t Target, j *journal, p *progress) ([]symptom, error) {
	j.read(ctx, h, t.Since)
	o := observe(ctx, h, t, j.entries)
	if p != nil {
		p.changes(o)
	}
	found := o.causes()
	if ctx.Err() != nil {
		return nil, errors.Wrap(context.Cause(ctx), "the diagnosis ended before it had looked everywhere")
	}
	return found, o.unseen(j.err)
}

// unseen returns an error if systemd didn't answer, or if the journal couldn't be read. A host without systemd has no journal of the
// kubelet.
func (o *observation) unseen(journalErr error) error {
	if errors.Is(o.unitErr, host.ErrNoSystemd) {
		return nil
	}
	failed := o.unitErr
	if failed == nil {
		failed = journalErr
	}
	return fault.WithRemedy(errors.WithMessage(failed, "the diagnosis could not look everywhere"),
		"see whether `systemctl status kubelet` and `journalctl -u kubelet` answer, and run `slipway diagnose` again")
}

func (o *observation) causes() []symptom {
	o.read()
	var found, users []symptom
	for _, c := range Causes() {
		if c.fallback && len(found) > 0 {
			continue
		}
		for _, f := range c.look(o) {
			f.Name, f.Severity = c.Name, fault.Broken
			list := &found
			if p := o.pod(f.Subject); p != nil && !p.needed() {
				list, f.minDuration = &users, never
			}
			if !slices.ContainsFunc(*list, func(g symptom) bool { return g.key() == f.key() }) {
				*list = append(*list, f.shown())
			}
		}
	}
	if o.t.Waiting && len(found) > 0 {
		return found
	}
	return append(found, users...)
}

func (f symptom) key() string { return f.Name + " " + f.Subject }

const (
	// evidenceLines and evidenceWidth (bytes) keep evidence readable.
	evidenceLines = 4
	evidenceWidth = 400
)

// shown makes a finding presentable: short, and without secrets.
func (f symptom) shown() symptom {
	f.Message, f.Remedy = redact.Text(f.Message), redact.Text(f.Remedy)
	var lines []string
	for _, line := range f.Evidence[max(0, len(f.Evidence)-evidenceLines):] {
		if line = short(strings.TrimSpace(redact.Text(unpacked(line)))); line != "" {
			lines = append(lines, line)
		}
	}
	f.Evidence = lines
	return f
}

func short(line string) string {
	if len(line) > evidenceWidth {
		line = strings.ToValidUTF8(line[:evidenceWidth], "") + " …"
	}
	return line
}
