// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package progress shows people the progress of the lab's long steps: a line at the start and at the end of each, and the elapsed
// time in between. Steps may run side by side.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// heartbeat is how often a running step reports where lines can't be rewritten.
const heartbeat = 30 * time.Second

// Log writes steps to one writer.
type Log struct {
	mu     sync.Mutex
	w      io.Writer
	live   bool // w is a terminal: the line of a step that runs alone is rewritten
	active int  // running steps
	open   bool // the last line isn't terminated yet
}

// New returns a Log. A nil writer discards everything.
func New(w io.Writer) *Log {
	if w == nil {
		w = io.Discard
	}
	return &Log{w: w, live: isTerminal(w)}
}

// Do runs fn as a step called name. Its error is returned, not printed.
func (l *Log) Do(name string, fn func() error) error {
	start := time.Now()
	l.begin(name)
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Add(1)
	go func() {
		defer ticking.Done()
		l.tick(name, start, done)
	}()
	err := fn()
	close(done)
	ticking.Wait()
	l.end(name, time.Since(start), err)
	return err
}

// Printf writes one line.
func (l *Log) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line(format, args...)
}

func (l *Log) begin(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open { // by a step that has company now
		fmt.Fprintln(l.w)
		l.open = false
	}
	l.active++
	if l.rewrites() {
		l.rewrite("%s …", name)
		return
	}
	l.line("%s …", name)
}

func (l *Log) tick(name string, start time.Time, done <-chan struct{}) {
	period := heartbeat
	if l.live {
		period = time.Second
	}
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
			l.beat(name, time.Since(start))
		}
	}
}

func (l *Log) beat(name string, elapsed time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.rewrites():
		l.rewrite("%s … %s", name, inSeconds(elapsed))
	case !l.live || elapsed.Truncate(time.Second)%heartbeat == 0:
		l.line("%s … %s", name, inSeconds(elapsed))
	}
}

func (l *Log) end(name string, elapsed time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.active--
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	l.line("%s: %s in %s", name, outcome, inSeconds(elapsed))
}

// line writes a line over an unterminated one.
func (l *Log) line(format string, args ...any) {
	l.rewrite(format+"\n", args...)
	l.open = false
}

// rewrite writes an unterminated line over another.
func (l *Log) rewrite(format string, args ...any) {
	start := ""
	if l.open {
		start = "\r\033[K"
	}
	fmt.Fprintf(l.w, start+format, args...)
	l.open = true
}

// rewrites reports whether the running step's line may be rewritten; it may if no other step runs.
func (l *Log) rewrites() bool { return l.live && l.active == 1 }

// inSeconds formats a duration for people: tenths of a second while it's short, then whole seconds.
func inSeconds(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
