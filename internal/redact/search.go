// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import "strings"

// Logs are long and expressions slow: the functions in this file find the few places
// where an expression may match.

// nearby passes each run of lines that contain one of the words, with the line after
// it, through shown. Without words, it passes the whole text.
func nearby(text string, words []string, shown func(lines string) string) string {
	if words == nil {
		return shown(text)
	}
	var out strings.Builder
	begin, at, hot := 0, 0, false
	for line := range strings.Lines(text) {
		has := containsAny(strings.ToLower(line), words)
		switch {
		case has && !hot:
			out.WriteString(text[begin:at])
			begin, hot = at, true
		case !has && hot: // the line after
			out.WriteString(shown(text[begin : at+len(line)]))
			begin, hot = at+len(line), false
		}
		at += len(line)
	}
	if hot {
		return out.String() + shown(text[begin:])
	}
	return out.String() + text[begin:]
}

func containsAny(text string, words []string) bool {
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// runs replaces each run of at least so many letters, digits and others by the result of
// shown, which also gets the text before it.
func runs(text string, least int, others string, shown func(before, run string) string) string {
	var out strings.Builder
	end, begin := 0, 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && (isAlphanumeric(text[i]) || strings.IndexByte(others, text[i]) >= 0) {
			continue
		}
		if i-begin >= least {
			out.WriteString(text[end:begin] + shown(text[:begin], text[begin:i]))
			end = i
		}
		begin = i + 1
	}
	return out.String() + text[end:]
}

func isAlphanumeric(b byte) bool {
	return '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}
