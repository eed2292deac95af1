// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"unicode"
)

var looksSecret = regexp.MustCompile(`[a-z0-9]{6}\.[a-z0-9]{16}|[0-9a-fA-F]{32}`)

// printable makes a name from the user's file safe to show: a name that looks
// like a token or a key is hidden, control characters are escaped, and what is
// too long is cut.
func printable(name string) string {
	if looksSecret.MatchString(name) {
		return redacted
	}
	if runes := []rune(name); len(runes) > 100 {
		name = string(runes[:100]) + "..."
	}
	if hasControl(name) {
		return strconv.Quote(name)
	}
	return name
}

// hasControl finds control characters and other runes that do not print.
func hasControl(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
