// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"strings"
)

// origin records where one document's fields were set.
type origin struct {
	file  string
	line  int
	lines map[string]int
	bad   map[string]bool
	flags map[string]string // path of a field: the flag that set it
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
		if line, ok := o.lines[p]; ok {
			return Fault{File: o.file, Line: line, Field: path, Message: message}
		}
	}
	return Fault{File: o.file, Line: o.line, Field: path, Message: message}
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
