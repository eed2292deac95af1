// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package redact takes secrets out of what is shown or given away: text such
// as lines of logs, and documents whose structure says where secrets are.
package redact

import (
	"regexp"
	"strings"
	"sync"
)

// mark stands where a secret was.
const mark = "[redacted]"

// rule replaces what a pattern finds. The groups of the pattern that are kept
// are named in with.
type rule struct {
	pattern *regexp.Regexp
	with    string
	// but are values, the pattern's second group, that stay; nil for none.
	but func() *regexp.Regexp
}

// secretName is what names of fields, variables and flags end with that hold a
// secret.
const secretName = `(?:password|passwd|passphrase|token|secret(?:[-_]?key)?|(?:api|access|private|certificate)[-_]?key|client-key-data|credential)s?`

// secretFlag is the name of a flag whose value is a secret.
var secretFlag = lazy(`(?i)^-[\w.-]*` + secretName + `$`)

// hexKey is the form of a certificate key, 32 bytes as hex. Container IDs and
// digests have it, too.
var hexKey = lazy(`(sha256:)?\b[0-9a-fA-F]{64}\b`)

// lazy compiles an expression when it is first needed: most runs of the program
// need none.
func lazy(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// rules find secrets by their own form, wherever they are.
var rules = sync.OnceValue(func() []rule {
	return []rule{
		// A private key in PEM, also where its lines were joined by \n in a
		// string, and one whose end was cut off.
		{regexp.MustCompile(`(?s)-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`), "-----BEGIN $1----- " + mark, nil},
		// The same in base64, as kubeconfigs hold it: every PEM block begins with
		// "-----BEGIN", and a key's with one of these words behind it.
		{regexp.MustCompile(`LS0tLS1CRUdJTi(?:BSU0EgU|BFQyBQ|BQUklWQ|BFTkNSWVBURU|BPUEVOU1NI|BEU0Eg)[A-Za-z0-9+/=_-]*`), mark, nil},
		// Bootstrap tokens.
		{regexp.MustCompile(`\b([a-z0-9]{6})\.[a-z0-9]{16}\b`), "$1." + mark, nil},
		// JSON Web Tokens, such as those of service accounts.
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`), mark, nil},
		{regexp.MustCompile(`(?i)\b((?:bearer|basic) )[A-Za-z0-9+/=._~-]{8,}`), "$1" + mark, nil},
		// --something-token=value, password: value, "secretKey": "value".
		{regexp.MustCompile(`(?i)((?:^|[\s"',{&?-])[\w.-]*` + secretName + `\\*"?\s*[=:]\s*)(\\+"[^"\\]*|"[^"]*"|'[^']*'|[^\s,"'}&\\]+)`), "${1}" + mark, harmless},
		// The same flags with the value as the next word, or as the next item of
		// a list, which may be quoted.
		{regexp.MustCompile(`(?i)(--[\w.-]*` + secretName + `(?:[ \t]+|\\*["']?\n\s*-\s+|\\*["'][ \t,]\s*))(\\*"[^"]*"|'[^']*'|\S+)`), "${1}" + mark, marked},
	}
})

// harmless are values that the rules for names would hide, and that one needs
// to see: files, booleans, numbers.
var harmless = lazy(`^["']?(?:/[\w./-]*|true|false|null|\d{1,9}|\[redacted\].*|[\[{].*)?["']?$`)

// marked are values that a rule for structure has hidden already.
var marked = lazy(`^["']?\[redacted\]`)

// Text replaces every secret that text shows by its form or by the name before
// it. known are names of 64 hex digits that are no secret: the IDs of
// containers.
func Text(text string, known ...string) string {
	text = URLs(text)
	for _, r := range rules() {
		text = r.pattern.ReplaceAllStringFunc(text, func(found string) string {
			groups := r.pattern.FindStringSubmatch(found)
			if r.but != nil && r.but().MatchString(groups[2]) {
				return found
			}
			return r.pattern.ReplaceAllString(found, r.with)
		})
	}
	return hexKey().ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasPrefix(found, "sha256:") {
			return found
		}
		for _, id := range known {
			if found == id {
				return found
			}
		}
		return mark
	})
}
