// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// lively is how recently something must have moved for a wait to be slow rather than stuck.
const lively = time.Minute

// progress is what a wait sees: the errors of its tries and, between two looks, containers and logs. Only tried and saying are for
// other goroutines.
type progress struct {
	h     View
	w     Wait
	began time.Time // on this process's clock

	state map[string]string // of everything in which a cause may show, at the last look
	known map[string]bool   // errors and ends of logs at earlier looks, without their numbers

	mu     sync.Mutex // for the rest
	last   error      // of the last try
	looked time.Time  // the last look that could list the containers
	moved  time.Time  // when something last made progress; zero if nothing has
	seen   []string   // what has made progress since the last line
	told   []string   // what an earlier line said about that
}

func newProgress(h View, w Wait) *progress {
	return &progress{h: h, w: w, began: time.Now(), known: map[string]bool{}}
}

// tried notes the error of a try.
func (p *progress) tried(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = err
}

// error is the last try's, in a line.
func (p *progress) error() string {
	p.mu.Lock()
	err := p.last
	p.mu.Unlock()
	if err == nil {
		return ""
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	if answer := (*host.ProbeError)(nil); errors.As(err, &answer) {
		text = strings.Join(append([]string{fmt.Sprintf("%s answers with status %d", answer.URL, answer.Status)}, failing(answer.Body)...), ", ")
	}
	return short(redact.Text(text))
}

// changes compares an observation with the one before, and notes progress: containers that start, logs that don't repeat
// themselves, and errors that are new, such as a shorter list of failed checks. It reports whether anything has changed in which a
// cause may show.
func (p *progress) changes(o *observation) bool {
	listed := p.noteLook(o)
	now := map[string]string{"unit": fmt.Sprint(o.unit.MainPID, o.unit.ActiveState, o.unit.Result), "runtime": fmt.Sprint(o.runtimeErr)}
	for _, e := range last(o.journal, 1) {
		now["journal"] = e.Time.String()
	}
	for _, file := range files(o.h, o.t.Manifests) {
		if info, err := o.h.Lstat(file); err == nil {
			now[file] = info.ModTime().String()
		}
	}
	for _, c := range o.containers {
		now[c.ID] = c.State
		if info, err := o.h.Stat(c.LogPath); err == nil {
			now[c.LogPath] = fmt.Sprint(info.Size())
		}
		switch {
		case p.state == nil:
		case c.State == "running" && p.state[c.ID] != c.State:
			p.saw(c.Name + " started")
		case c.LogPath != "" && p.state[c.LogPath] != now[c.LogPath]:
			if line := lastLine(p.h, c.LogPath); line != "" && p.isNew(line) {
				p.saw(c.Name + " logs")
			}
		}
	}
	if text := p.error(); p.isNew(text) && p.state != nil {
		p.saw("the answers change")
	}
	now["errors"] = fmt.Sprint(len(p.known))
	if !listed { // nobody knows whether a container has started since
		for key, value := range p.state {
			if _, known := now[key]; !known {
				now[key] = value
			}
		}
	}
	changed := !maps.Equal(now, p.state)
	p.state = now
	return changed
}

// noteLook notes the time of a look that could list the containers, and reports whether it was one.
func (p *progress) noteLook(o *observation) bool {
	if errors.Is(o.runtimeErr, context.DeadlineExceeded) || errors.Is(o.runtimeErr, context.Canceled) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = time.Now()
	return true
}

// isNew reports whether a line hasn't been seen before, whatever its numbers.
func (p *progress) isNew(line string) bool {
	line = normalize(line)
	old := p.known[line]
	p.known[line] = true
	return !old
}

func (p *progress) saw(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = time.Now()
	if !slices.Contains(p.seen, what) {
		p.seen = append(p.seen, what)
	}
}

// saying shows a line every sayInterval, even during a look that takes long, until stop is called.
func (p *progress) saying() (stop func()) {
	ended, group := make(chan struct{}), sync.WaitGroup{}
	group.Go(func() {
		tick := time.NewTicker(sayInterval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				p.say()
			}
		}
	})
	return func() {
		close(ended)
		group.Wait()
	}
}

// say shows what the wait waits for, and what moves.
func (p *progress) say() {
	now, failed := time.Now(), p.error()
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := strings.Join(p.seen, ", ")
	switch {
	case len(p.seen) > 0:
	case now.Sub(p.looked) > 2*sayInterval && now.Sub(p.began) > 2*sayInterval:
		seen = "this host is slow, and no look at its containers has ended yet"
		if !p.looked.IsZero() {
			seen = "this host is slow: the last look at its containers was " + now.Sub(p.looked).Round(time.Second).String() + " ago"
		}
	case p.moved.IsZero():
		seen = "nothing moves"
	default:
		seen = "nothing has moved for " + now.Sub(p.moved).Round(time.Second).String()
	}
	if p.w.Say != nil {
		p.w.Say("Still waiting after %s of %s: %s", now.Sub(p.began).Round(time.Second), p.w.Limit, strings.TrimPrefix(failed+"; "+seen, "; "))
	}
	if len(p.seen) > 0 {
		p.told, p.seen = p.seen, nil
	}
}

// slow adds to the error of a wait whose time is up that something still made progress, and which timeout to raise. On a saturated
// host, looks are minutes apart, so the last one counts.
func (p *progress) slow(ended time.Time, err error) error {
	if p.moved.IsZero() || p.moved.Before(p.looked) && ended.Sub(p.moved) > min(lively, p.w.Limit/2) {
		return err
	}
	seen := slices.Compact(slices.Sorted(slices.Values(slices.Concat(p.told, p.seen))))
	remedy := "give it more time: run the same command again"
	if p.w.Field != "" {
		remedy = fmt.Sprintf("give it more time: run the same command again. If its configuration can have timeouts, set timeouts.%s to more than %s, for example %s",
			p.w.Field, p.w.Limit, 2*p.w.Limit)
	}
	if own := fault.Remedy(err); own != "" {
		remedy += "; if that doesn't help, " + own
	}
	return fault.WithRemedy(errors.WithMessagef(err, "timed out after %s while it was still making progress (%s)",
		p.w.Limit, strings.Join(seen, ", ")), remedy)
}
