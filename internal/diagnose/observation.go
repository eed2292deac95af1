// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

const (
	kubeletService = host.KubeletUnit
	// kubeletName stands for the kubelet in place of a static Pod's name.
	kubeletName = "kubelet"
	// runtimeTimeout is how long a runtime may take to list its containers: less than lookTimeout, so that a look notices if it
	// hangs, and has time left to look at its unit.
	runtimeTimeout = 30 * time.Second
)

// observation holds the facts of one look that several causes need, read once.
type observation struct {
	ctx context.Context
	h   View
	t   Target

	unit    host.UnitState
	unitErr error
	// journal is the kubelet's since Target.Since, with systemd's lines about the unit.
	journal    []entry
	containers []host.ContainerState // of kube-system
	runtimeErr error

	// The rest is for the causes; read sets pods and sources.
	pods    []staticPod
	sources []source
	// faults holds the certificates' problems once checked is set.
	faults  []symptom
	checked bool
	// health is etcd's members once asked is set.
	health []etcd.Health
	asked  bool
	// resolved maps the names that were looked up to their errors.
	resolved map[string]error
}

// said is a line of a log, with the times it was logged first and last.
type said struct {
	text        string
	first, last time.Time
}

// source is a log to search for causes.
type source struct {
	subject string
	said    []said
	lines   []string // of said
	// dead is set if the process behind the log has ended, and no other has run in its place for a while.
	dead bool
}

// observe reads the facts that cost little, without those it can't read.
func observe(ctx context.Context, h View, t Target, journal []entry) *observation {
	o := &observation{ctx: ctx, h: h, t: t, journal: joined(journal), resolved: map[string]error{}}
	o.unit, o.unitErr = h.Unit(ctx, kubeletService)
	asking, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	o.containers, o.runtimeErr = h.ContainerStates(asking, t.Socket, metav1.NamespaceSystem)
	return o
}

// read reads the static Pods and all logs.
func (o *observation) read() {
	o.pods = staticPods(o.h, o.t, o.containers)
	kubelet := source{subject: kubeletName, dead: o.unitErr == nil && o.unit.ActiveState != "active"}
	for _, e := range o.journal {
		if e.Program != "systemd" && !informative(e.Message) {
			kubelet.said = append(kubelet.said, said{e.Message, e.first, e.Time})
		}
	}
	o.sources = append(o.sources, kubelet)
	for _, p := range o.pods {
		o.sources = append(o.sources, source{subject: p.name, said: p.said, dead: p.dead})
	}
	for i := range o.sources {
		o.sources[i].lines = texts(o.sources[i].said)
	}
}

// informative reports whether a line of a log has level info. Most lines do, and they name no cause.
func informative(line string) bool {
	return strings.HasPrefix(line, `{"level":"info"`) ||
		len(line) > 4 && line[0] == 'I' && strings.Trim(line[1:5], "0123456789") == ""
}

func texts(list []said) []string {
	var lines []string
	for _, l := range list {
		lines = append(lines, l.text)
	}
	return lines
}

func (o *observation) kubeletLines() []string { return o.sources[0].lines }

const (
	// minRepeatSpan is how long a log must repeat a line, at least, if there's no other way to check its claim.
	minRepeatSpan = time.Second
	// maxLineAge is how old such a line may be: an older problem may have been fixed.
	maxLineAge = 30 * time.Second
)

// recentLines returns the lines a pattern matches if they're fresh, or if their process has ended.
func (o *observation) recentLines(src source, p lazyregexp.Pattern) []string {
	return texts(o.recent(src, p))
}

// repeatedLines is recentLines for lines a log keeps repeating: since the wait began, and again within about twice the time so
// far, as retries back off. Once isn't enough: a slow start logs many errors once.
func (o *observation) repeatedLines(src source, p lazyregexp.Pattern) []string {
	found := o.recent(src, p)
	var first, last time.Time
	for _, l := range found {
		if first.IsZero() || l.first.Before(first) {
			first = l.first
		}
		if l.last.After(last) {
			last = l.last
		}
	}
	span := last.Sub(first)
	if src.dead || span >= minRepeatSpan && o.ago(last) <= 2*(span+minRepeatSpan) && !last.Before(o.t.began) {
		return texts(found)
	}
	return nil
}

func (o *observation) recent(src source, p lazyregexp.Pattern) []said {
	var found []said
	for _, l := range src.said {
		if (src.dead || o.ago(l.last) < maxLineAge) && p().MatchString(l.text) && !foreign().MatchString(l.text) {
			found = append(found, l)
		}
	}
	return found
}

func matching(lines []string, pattern lazyregexp.Pattern) []string {
	var found []string
	for _, line := range lines {
		if pattern().MatchString(line) && !foreign().MatchString(line) {
			found = append(found, line)
		}
	}
	return found
}

// foreign matches complaints about connecting clients, which say nothing about the complaining component.
var foreign = lazyregexp.New(`TLS handshake error from|rejected connection`)

func last[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// klogHead matches the beginning of each line of a Kubernetes component: E1121 09:00:00.000000    1234 server.go:210]
var klogHead = lazyregexp.New(`^[IWEF]\d{4} [\d:.]+ +\d+ [\w.-]+:\d+\] `)

// normalize strips from a line the parts that vary between processes: time, process and numbers.
func normalize(line string) string {
	return numbers().ReplaceAllString(klogHead().ReplaceAllString(line, ""), "#")
}

var numbers = lazyregexp.New(`\d+`)

// passing matches complaints about something else that isn't ready yet, as on every slow start.
var passing = lazyregexp.New(`connection refused|deadline exceeded|i/o timeout|timed out|connection reset|\bEOF\b|no route to host|not yet|` +
	`network is unreachable|context canceled|lost lease|leader ?election lost|[Tt]imeout|request timed out|leader changed|no leader|[Tt]oo [Mm]any [Rr]equests|` +
	`server is currently unable|not ready|unauthorized|Unauthorized|forbidden|` +
	// A busy runtime may create a Pod more slowly than the kubelet waits, and gives this error to its next request for that Pod.
	`is reserved for|already exists|temporarily unavailable|transport is closing|connection lost|` +
	// From an etcd with slow peers.
	`could not retrieve cluster information`)

func (o *observation) ago(at time.Time) time.Duration { return o.h.Now().Sub(at) }

// unpacked makes a line of etcd's log, which is JSON with a stack, readable.
func unpacked(line string) string {
	var entry struct {
		Level, Msg, Error string
	}
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &entry) != nil || entry.Msg == "" {
		return line
	}
	return strings.TrimSuffix(entry.Level+": "+entry.Msg+": "+entry.Error, ": ")
}

// said returns the last line a pattern matches in each log.
func (o *observation) said(pattern lazyregexp.Pattern) []string {
	var lines []string
	for _, src := range o.sources {
		for _, line := range last(matching(src.lines, pattern), 1) {
			lines = append(lines, src.subject+": "+unpacked(line))
		}
	}
	return lines
}
