// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package address

import (
	"net/netip"
	"strings"
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
	old, end := from.String(), 0
	var b strings.Builder
	for {
		at := strings.Index(text[end:], old)
		if at < 0 {
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
