// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp compiles regular expressions on first use: most runs of the program need none, and start faster that way.
// New returns a Pattern, which compiles its expression on the first call. docs/design/startup-time.md has the rule.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Pattern returns the compiled expression.
type Pattern func() *regexp.Regexp

// New returns a Pattern. Its first call compiles the expression, and panics if it isn't valid. It isn't inlined, or each of
// the program's patterns would get three functions of its own.
//
//go:noinline
func New(expression string) Pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
