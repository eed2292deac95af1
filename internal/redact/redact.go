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
}

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
		{regexp.MustCompile(`(?s)-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`), "-----BEGIN $1----- " + mark},
		// The same in base64, as kubeconfigs hold it: every PEM block begins with
		// "-----BEGIN", and a key's with one of these words behind it.
		{regexp.MustCompile(`LS0tLS1CRUdJTi(?:BSU0EgU|BFQyBQ|BQUklWQ|BFTkNSWVBURU|BPUEVOU1NI|BEU0Eg)[A-Za-z0-9+/=_-]*`), mark},
		// Bootstrap tokens.
		{regexp.MustCompile(`\b([a-z0-9]{6})\.[a-z0-9]{16}\b`), "$1." + mark},
		// JSON Web Tokens, such as those of service accounts.
		{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?`), mark},
		{regexp.MustCompile(`(?i)\b((?:bearer|basic) )[A-Za-z0-9+/=._~-]{8,}`), "$1" + mark},
		// user:password@ of a URL, such as a proxy's.
		{regexp.MustCompile(`(://)[^\s/@"'\\]*:[^\s/"'\\]*@`), "$1" + mark + "@"},
		// --something-token=value, password: value, "secretKey": "value".
		{regexp.MustCompile(`(?i)((?:^|[\s"',{&?-])[\w.-]*(?:password|passwd|token|secret(?:-?key)?|api-?key|private-?key|certificate-?key|client-key-data|credential)s?\\*"?\s*[=:]\s*)(\\+"[^"\\]*|"[^"]*"|'[^']*'|[^\s,"'}&\\]+)`), "${1}" + mark},
		// The same flags with the value as the next word.
		{regexp.MustCompile(`(?i)(--(?:token|discovery-token|tls-bootstrap-token|certificate-key|password)\s+)\S+`), "${1}" + mark},
	}
})

// harmless are values that the rules for names would hide, and that one needs
// to see: files, booleans, numbers.
var harmless = lazy(`^["']?(?:/[\w./-]*|true|false|null|\d{1,9}|\[redacted\].*|[\[{].*)?["']?$`)

// Text replaces every secret that text shows by its form or by the name before
// it. known are names of 64 hex digits that are no secret: the IDs of
// containers.
func Text(text string, known ...string) string {
	for _, r := range rules() {
		text = r.pattern.ReplaceAllStringFunc(text, func(found string) string {
			groups := r.pattern.FindStringSubmatch(found)
			if len(groups) == 3 && harmless().MatchString(groups[2]) {
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
