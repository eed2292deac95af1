// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// Fault is one problem in the configuration. Its text never contains a token or a key. It isn't a fault.Finding, because it has a
// line, and neither a name to ignore it by nor a severity.
type Fault struct {
	// File and Line locate the document; they're zero for the command line and for values that don't come from a file.
	File string
	Line int
	// Field is a path (networking.podSubnet) or flag (--pod-network-cidr), or empty if the whole document is at fault.
	Field   string
	Message string
}

// Error formats the fault as FILE:LINE: FIELD: message, without unknown parts.
func (f Fault) Error() string {
	var b strings.Builder
	if f.File != "" {
		b.WriteString(f.File + ":")
		if f.Line > 0 {
			fmt.Fprintf(&b, "%d:", f.Line)
		}
		b.WriteByte(' ')
	}
	if f.Field != "" {
		b.WriteString(f.Field + ": ")
	}
	b.WriteString(f.Message)
	return b.String()
}

// Faults is every fault of a load: the command line's first, then by line. All loaders return this type for invalid input.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fault.Error()
	}
	return strings.Join(lines, "\n")
}

// maxFaults ends the search: nobody reads more.
const maxFaults = 200

// findings collects faults and warnings. The zero value is ready to use.
type findings struct {
	faults   []Fault
	warnings []Fault
}

func (f *findings) fault(x Fault) {
	if !f.full() {
		f.faults = append(f.faults, x)
	}
}

func (f *findings) full() bool { return len(f.faults) >= maxFaults }

func (f *findings) warn(x Fault) { f.warnings = append(f.warnings, x) }

func (f *findings) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	faults := sorted(f.faults)
	if f.full() {
		faults = append(faults, Fault{Message: fmt.Sprintf("stopped after %d faults", maxFaults)})
	}
	return Faults(faults)
}

func (f *findings) warningTexts() []string {
	var texts []string
	for _, w := range sorted(f.warnings) {
		texts = append(texts, w.Error())
	}
	return texts
}

// sorted returns a sorted copy without duplicates: faults outside files first, then by line, then as found.
func sorted(list []Fault) []Fault {
	list = slices.SortedStableFunc(slices.Values(list), func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return slices.Compact(list)
}

// origin records where one document's fields were set.
type origin struct {
	file  string
	line  int
	lines map[string]int
	bad   map[string]bool
	flags map[string]string // path of a field: the flag that set it
	tree  any               // the known part of the document, as JSON
}

// faultf adds a field's fault, located by flag or by file and line, unless the field couldn't be read, which has been reported.
func (d *documents) faultf(kind, path, format string, args ...any) {
	if o := d.origins[kind]; o != nil && o.unread(path) {
		return
	}
	d.fault(d.place(kind, path, fmt.Sprintf(format, args...)))
}

func (d *documents) warnf(kind, path, format string, args ...any) {
	d.warn(d.place(kind, path, fmt.Sprintf(format, args...)))
}

// place locates a message: at the flag that set the field, or at the line of the field or its nearest parent in the file.
func (d *documents) place(kind, path, message string) Fault {
	o := d.origins[kind]
	if o == nil {
		return Fault{Field: path, Message: message}
	}
	for p := path; p != ""; p = parentPath(p) {
		if flag, ok := o.flags[p]; ok {
			return Fault{Field: "--" + flag, Message: message}
		}
		if o.lines[p] > 0 {
			break
		}
	}
	return Fault{File: o.file, Line: cmp.Or(o.lineOf(path), o.line), Field: path, Message: message}
}

// lineOf returns the line of a field, or of its nearest parent in the document; 0 if there's none.
func (o *origin) lineOf(path string) int {
	for p := path; p != ""; p = parentPath(p) {
		if line := o.lines[p]; line > 0 {
			return line
		}
	}
	return 0
}

// unread reports whether path, a parent or a child of it couldn't be read.
func (o *origin) unread(path string) bool {
	for p := path; p != ""; p = parentPath(p) {
		if o.bad[p] {
			return true
		}
	}
	for p := range o.bad {
		if path != "" && (strings.HasPrefix(p, path+".") || strings.HasPrefix(p, path+"[")) {
			return true
		}
	}
	return o.bad[""]
}

// parentPath removes the last step of a path such as a.b[1].
func parentPath(path string) string {
	return path[:max(strings.LastIndexAny(path, ".["), 0)]
}

var looksSecret = lazyregexp.New(`[a-z0-9]{6}\.[a-z0-9]{16}|[0-9a-fA-F]{32}`)

var secretWords = lazyregexp.New(`\b[a-z0-9]{6}\.[a-z0-9]{16,}\b|(sha256:)?\b[0-9a-fA-F]{64,}\b`)

// RedactSecrets redacts anything that looks like a bootstrap token or a certificate key, a last safeguard against library errors
// that quote a command line with a secret in the wrong place. It keeps hashes with a sha256: prefix.
func RedactSecrets(message string) string {
	return secretWords().ReplaceAllStringFunc(message, func(word string) string {
		if strings.HasPrefix(word, "sha256:") {
			return word
		}
		return redacted
	})
}

// printable makes text from the user's file safe to show: it redacts anything like a token, a key or user:password@, replaces
// control characters, and shortens long text.
func printable(text string) string {
	if looksSecret().MatchString(text) {
		return redacted
	}
	if at := strings.LastIndexByte(text, '@'); at > 0 && strings.Contains(text[:at], ":") {
		text = redacted + text[at:]
	}
	if runes := []rune(text); len(runes) > 100 {
		text = string(runes[:100]) + "..."
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// hasControl reports whether s has control characters or other nonprinting runes.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// didYouMean returns `; did you mean "x"?` with the known name closest to word, or nothing if none is close.
func didYouMean(word string, known []string) string {
	if len(word) > 64 { // no field has such a long name, and measuring takes time
		return ""
	}
	best, bestDistance := "", min(len(word)/4+1, 3)+1
	for _, k := range slices.Sorted(slices.Values(known)) {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}

// editDistance counts the insertions, deletions, replacements and neighbor swaps that turn a into b (optimal string alignment).
func editDistance(a, b string) int {
	before, last := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
