// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// ReplaceAddresses returns a text with the new address in place of the former ones.
func (m *Move) ReplaceAddresses(text string) string {
	for _, from := range m.From {
		text = replace(text, from, m.To)
	}
	return text
}

// Mentions reports whether a text has a former address.
func (m *Move) Mentions(text string) bool { return m.ReplaceAddresses(text) != text }

// replace leaves anything longer alone that only contains the address: 10.0.0.1 isn't in 10.0.0.12, 110.0.0.1 or 10.0.0.1.example.
func replace(text string, from, to netip.Addr) string {
	var b strings.Builder
	for end := 0; ; {
		at, old := find(text[end:], from)
		if old == "" {
			return b.String() + text[end:]
		}
		at += end
		b.WriteString(text[end:at])
		end = at + len(old)
		if isPartOfWord(text[:at], false, from) || isPartOfWord(text[end:], true, from) {
			b.WriteString(old)
		} else {
			b.WriteString(to.String())
		}
	}
}

// colonWords finds words that may be IPv6 addresses.
var colonWords = lazyregexp.New(`[0-9a-fA-F]*:[0-9a-fA-F:]+`)

// find returns the next place of an address in a text, and the form that it has there: fd00::1 may be FD00:0::1. Without it, old is empty.
func find(text string, address netip.Addr) (at int, old string) {
	if address.Is4() {
		old = address.String()
		if at = strings.Index(text, old); at < 0 {
			return 0, ""
		}
		return at, old
	}
	for _, word := range colonWords().FindAllStringIndex(text, -1) {
		old = text[word[0]:word[1]]
		if a, err := netip.ParseAddr(old); err == nil && a == address {
			return word[0], old
		}
	}
	return 0, ""
}

// isPartOfWord reports whether the text right after or before an address is a part of the same word. A dot after it may end a
// sentence.
func isPartOfWord(text string, after bool, address netip.Addr) bool {
	if text == "" {
		return false
	}
	next, rest := text[len(text)-1], ""
	if after {
		next, rest = text[0], text[1:]
	}
	switch next {
	case '.':
		return !after || rest != "" && inWord(rest[0])
	case ':':
		return address.Is6() // otherwise a port follows
	}
	return inWord(next)
}

func inWord(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
