// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from what is shown or shared: text such as lines of
// logs, and documents whose structure says where secrets are.
//
// When in doubt, it removes. A scanner such as gitleaks does the opposite: it reports
// what is worth a person's time. So it wants a keyword nearby, enough entropy and no
// word such as "example", it does not know cookies or signed URLs, and a comment on
// the line turns it off. It would also make the program 7 MB larger. But it is a good
// judge of the result: test/gitleaks checks this package against its rules.
package redact

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// mark replaces a secret.
const mark = "[redacted]"

// rule hides the secrets that a pattern finds. The pattern's first group stays,
// its second one is the secret.
type rule struct {
	// near are words in lower case. A line with such a secret, or the line before
	// it, contains at least one of them. They are found much faster than pattern.
	near    []string
	pattern lazyregexp.Pattern
	// stays reports whether a match is not a secret; nil if it always is.
	stays func(secret string) bool
}

func (r rule) hide(text string) string {
	return nearby(text, r.near, func(lines string) string {
		var out strings.Builder
		end := 0
		for _, at := range r.pattern().FindAllStringSubmatchIndex(lines, -1) {
			if r.stays != nil && r.stays(lines[at[4]:at[5]]) {
				continue
			}
			out.WriteString(lines[end:at[4]] + mark)
			end = at[5]
		}
		return out.String() + lines[end:]
	})
}

func matches(pattern lazyregexp.Pattern) func(string) bool {
	return func(s string) bool { return pattern().MatchString(s) }
}

// Text replaces every secret that is recognized by its form or by the name before it.
// Certificates stay. known lists strings of 64 hex digits that are not secret: the IDs
// of containers.
func Text(text string, known ...string) string {
	return betweenCertificates(text, func(part string) string { return hideHexKeys(hide(part, encodings), known) })
}

// encodings is how many layers of base64 around a secret are decoded.
const encodings = 2

func hide(text string, encodings int) string {
	text = URLs(text)
	for _, r := range nameRules {
		text = r.hide(text)
	}
	text = privateKeys(nearby(text, []string{"value"}, listedVariables))
	for _, r := range formRules {
		text = r.hide(text)
	}
	return encoded(awsSecrets(issued(text)), encodings)
}

// secretName matches the names of fields, variables and flags that hold a secret.
const secretName = `(?:[\w.-]*(?:password|passwd|passphrase|passcode|pwd|token|secret|credential|cookie|signature` +
	`|client[-_]?key[-_]?data|connection[-_]?string` +
	`|(?:secret|api|access|private|certificate|account|storage|signing|encryption|shared|auth|session|master)[-_]?(?:access[-_]?)?key)s?` +
	`|(?:[\w.-]*[._-])?(?:pass|auth|sig|creds?|session|url-header))`

// secretFlag matches a flag whose value is a secret.
var secretFlag = lazyregexp.New(`(?i)^--?` + secretName + `$`)

// secretField matches the name of a field whose value is a secret.
var secretField = lazyregexp.New(`(?i)^(?:` + secretName + `|username)$`)

const (
	// value matches a string in quotes, which may be escaped, a list, or a word. A
	// quote that is not closed ends with the line. An object does not match, as its
	// fields have names of their own.
	value = `\\+"[^"\\\n]*|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\[[^\]\n{]*\]?|(?:[^\s"'\\\[{]|\\[^\s"'])(?:[^\s"'\\]|\\[^\s"'])*[^\s"'\\,;)}\]]|[^\s"'\\,;)}\][{]`
	// headerName matches HTTP headers with credentials.
	headerName = `(?:(?:proxy-)?authorization|(?:set-)?cookie2?|(?:private|job|deploy)-token|x-[a-z0-9-]*(?:token|key|auth|secret|signature|session)[a-z0-9-]*)`
)

// nearHeaders and nearNames: every headerName and secretName contains one of these.
var (
	nearHeaders = []string{"authorization", "cookie", "-token", "x-"}
	nearNames   = []string{"pass", "pwd", "token", "secret", "cred", "cookie", "sig", "key", "string", "auth", "session", "url-header"}
)

// nameRules find secrets by the text before them.
var nameRules = []rule{
	// Headers in quotes, as arguments of curl.
	{nearHeaders, lazyregexp.New(`(?i)("` + headerName + `[ \t]*:[ \t]*)([^\s"](?:[^"\\\n]|\\[^\n])*)`), nil},
	{nearHeaders, lazyregexp.New(`(?i)('` + headerName + `[ \t]*:[ \t]*)([^\s'][^'\n]*)`), nil},
	// Headers as fields of JSON, also inside a string, and as programs print them;
	// then in plain text, up to the end of the line.
	{nearHeaders, lazyregexp.New(`(?i)((?:^|[^\w-])` + headerName + `["'][ \t]*[:=][ \t]*)("(?:[^"\\\n]|\\.)*"?|\[[^\]\n]*\]?)`), nil},
	{nearHeaders, lazyregexp.New(`(?im)((?:^|[^\w-])` + headerName + `(?:\\+["'])?[ \t]*[:=][ \t]*)([^\s{"'][^\n]*|\\+"[^\n]*)`), matches(harmless)},
	// --something-token=value, password: value, "secretKey": "value".
	{nearNames, lazyregexp.New(`(?im)((?:^|[\s"',;{(\[&?=-])` + secretName + `\\*["']?[ \t]*(?:[=:]|=>|:=)[ \t]*)(` + value + `)`), matches(harmless)},
	// The same flags with the value as the next word, or the next item of a list,
	// which may be quoted.
	{nearNames, lazyregexp.New(`(?im)((?:^|[\s"'\[(,=])--?` + secretName + `(?:[ \t]+|\\*["']?\n\s*-\s+|\\*["'][ \t,]\s*))(\\*"(?:[^"\\\n]|\\[^"])*\\*"|'[^'\n]*'|\S+)`), matches(marked)},
	// User and password for curl, ctr and others.
	{[]string{"-u", "user"}, lazyregexp.New(`((?:^|[\s"'\[,])(?:-u|-U|--user|--proxy-user)\\*["']?[ =,]*)("[^":\n]*:[^"\n]*"|'[^':\n]*:[^'\n]*'|[^\s"':/]+:[^\s"']+)`), matches(marked)},
	{[]string{"login", "sshpass"}, lazyregexp.New(`(\b(?:login|sshpass)\b(?:[^\n]*?[ \t])?-p[ \t]*)(` + value + `)`), matches(marked)},
}

// harmless matches values that the rules for names would hide, but that are needed:
// files, booleans, small numbers.
var harmless = lazyregexp.New(`^["']?(?:/(?:etc|var|run|usr|opt|srv|home|root|tmp|mnt|proc|sys|dev)/[\w./-]*|true|false|null|nil|<nil>|\d{1,4}|\[redacted\].*|\[\]?)?["']?,?$`)

// marked matches values that another rule has already hidden.
var marked = lazyregexp.New(`^["']?\[redacted\]`)

// variableInList matches an environment variable as programs print it: in JSON, in
// Go's format, and in that of etcd.
var variableInList = lazyregexp.New(`(?i:\b(?:variable-)?(?:name|key)\\*"?[ \t]*:[ \t]*\\*"?)([A-Z_][A-Z0-9_]+)(?i:\\*"?[ \t]*,[ \t]*\\*"?(?:variable-)?value\\*"?[ \t]*:[ \t]*)(\[redacted\]|\\+"[^"\\\n]*|"(?:[^"\\\n]|\\.)*"?|[^\s,}\]"\\][^,}\]\n]*)`)

func listedVariables(text string) string {
	var out strings.Builder
	end := 0
	for _, at := range variableInList().FindAllStringSubmatchIndex(text, -1) {
		out.WriteString(text[end:at[4]] + variable(text[at[2]:at[3]], text[at[4]:at[5]]))
		end = at[5]
	}
	return out.String() + text[end:]
}
