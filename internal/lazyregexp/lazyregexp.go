// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package lazyregexp has regular expressions that are compiled when they are first
// used: most runs of the program use none, and start faster without.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Pattern returns a compiled expression.
type Pattern func() *regexp.Regexp

// New returns a Pattern that compiles the expression on its first call. That call panics
// if the expression is not valid.
func New(expression string) Pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
