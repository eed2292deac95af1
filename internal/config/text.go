// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

var looksSecret = lazyregexp.New(`[a-z0-9]{6}\.[a-z0-9]{16}|[0-9a-fA-F]{32}`)

var secretWords = lazyregexp.New(`\b[a-z0-9]{6}\.[a-z0-9]{16,}\b|(sha256:)?\b[0-9a-fA-F]{64,}\b`)

// Discreet redacts anything that looks like a bootstrap token or a certificate key, a last safeguard against library errors that
// quote a command line with a secret in the wrong place. It keeps hashes with a sha256: prefix.
func Discreet(message string) string {
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
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
