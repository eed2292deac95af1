// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package redact removes secrets from output and from files people share. In a file with a known structure, it shows only known
// fields; elsewhere it hides values after certain names, and words that look like keys. In doubt, it hides. It's for text from
// elsewhere: Slipway's own tokens and keys are a config.Secret, which never prints itself.
//
// Messages pass through URLs, plans and diffs through Fields and Document, logs through Text, and the support bundle's files
// also through YAML, Unit and Variables. docs/design/redaction.md has the reasons.
package redact

import (
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// mark replaces a secret.
const mark = "[redacted]"

// Text hides secrets it recognizes by form or by the name before them, not certificates. known is container IDs, which look like keys.
func Text(text string, known ...string) string {
	return betweenCertificates(text, func(text string) string {
		text = URLs(text)
		for _, r := range rules {
			text = r.hide(text)
		}
		if strings.Contains(text, "PRIVATE KEY") {
			text = privateKeyEnd().ReplaceAllString(privateKey().ReplaceAllString(text, "${1}"+mark), mark+"$1")
		}
		return hexKeys(hideWords(bootstrapToken().ReplaceAllString(text, "${1}"+mark)), known)
	})
}

// rule finds secrets by the text before them.
type rule struct {
	// near lists lower-case words, one of which is in such a secret's line or the line before: much faster to find than pattern.
	near []string
	// pattern has two groups: the text before the secret, or its name, and the secret.
	pattern lazyregexp.Pattern
	shown   func(name, secret string) string
}

// hide applies the rule to each run of lines with one of the words, and to the line after it.
func (r rule) hide(text string) string {
	var out strings.Builder
	begin, at, hot := 0, 0, false
	for line := range strings.Lines(text) {
		lower := strings.ToLower(line)
		has := slices.ContainsFunc(r.near, func(word string) bool { return strings.Contains(lower, word) })
		switch {
		case has && !hot:
			out.WriteString(text[begin:at])
			begin, hot = at, true
		case !has && hot: // the line after
			out.WriteString(r.hideIn(text[begin : at+len(line)]))
			begin, hot = at+len(line), false
		}
		at += len(line)
	}
	if hot {
		return out.String() + r.hideIn(text[begin:])
	}
	return out.String() + text[begin:]
}

func (r rule) hideIn(lines string) string {
	var out strings.Builder
	end := 0
	for _, at := range r.pattern().FindAllStringSubmatchIndex(lines, -1) {
		out.WriteString(lines[end:at[4]] + r.shown(lines[at[2]:at[3]], lines[at[4]:at[5]]))
		end = at[5]
	}
	return out.String() + lines[end:]
}

// hideUnlessMatch hides a secret that doesn't match.
func hideUnlessMatch(pattern lazyregexp.Pattern) func(name, secret string) string {
	return func(_, secret string) string {
		if pattern().MatchString(secret) {
			return secret
		}
		return mark
	}
}

const (
	// secretName matches names of secret fields, variables and flags.
	secretName = `(?:[\w.-]*(?:password|passwd|passphrase|passcode|pwd|token|secret|credential|cookie|signature` +
		`|client[-_]?key[-_]?data|connection[-_]?string` +
		`|(?:secret|api|access|private|certificate|account|storage|signing|encryption|shared|auth|session|master)[-_]?(?:access[-_]?)?key)s?` +
		`|(?:[\w.-]*[._-])?(?:pass|auth|sig|creds?|session|url-header))`
	// headerName matches HTTP headers with credentials.
	headerName = `(?:(?:proxy-)?authorization|(?:set-)?cookie2?|(?:private|job|deploy)-token|x-[a-z0-9-]*(?:token|key|auth|secret|signature|session)[a-z0-9-]*)`
	// value matches a string in quotes, possibly escaped, a list, or a word. An unclosed quote ends with the line. An object doesn't
	// match: its fields have their own names.
	value = `\\+"[^"\\\n]*|"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|\[[^\]\n{]*\]?|(?:[^\s"'\\\[{]|\\[^\s"'])(?:[^\s"'\\]|\\[^\s"'])*[^\s"'\\,;)}\]]|[^\s"'\\,;)}\][{]`
)

// Every match of headerName contains one of nearHeaders, and every match of secretName one of nearNames.
var (
	nearHeaders = []string{"authorization", "cookie", "-token", "x-"}
	nearNames   = []string{"pass", "pwd", "token", "secret", "cred", "cookie", "sig", "key", "string", "auth", "session", "url-header"}
)

var rules = []rule{
	// HTTP headers with credentials: as fields of JSON, then as programs print and take them, up to the end of the line.
	{nearHeaders, lazyregexp.New(`(?i)((?:^|[^\w-])` + headerName + `["'][ \t]*[:=][ \t]*)("(?:[^"\\\n]|\\.)*"?|\[[^\]\n]*\]?)`), hideUnlessMatch(marked)},
	{nearHeaders, lazyregexp.New(`(?im)((?:^|[^\w-])` + headerName + `[\\"']*[ \t]*[:=][ \t]*)([^\s{][^\n]*)`), hideUnlessMatch(harmless)},
	// --something-token=value, password: value, "secretKey": "value".
	{nearNames, lazyregexp.New(`(?im)((?:^|[\s"',;{(\[&?=-])` + secretName + `\\*["']?[ \t]*(?:[=:]|=>|:=)[ \t]*)(` + value + `)`), hideUnlessMatch(harmless)},
	// The same flags with the value as the next word, or the next item of a list.
	{nearNames, lazyregexp.New(`(?im)((?:^|[\s"'\[(,=])--?` + secretName + `(?:[ \t]+|\\*["']?\n\s*-\s+|\\*["'][ \t,]\s*))(\\*"(?:[^"\\\n]|\\[^"])*\\*"|'[^'\n]*'|\S+)`), hideUnlessMatch(marked)},
	// User and password for curl, ctr and others.
	{[]string{"-u", "user"}, lazyregexp.New(`((?:^|[\s"'\[,])(?:-u|-U|--user|--proxy-user)\\*["']?[ =,]*)("[^":\n]*:[^"\n]*"|'[^':\n]*:[^'\n]*'|[^\s"':/]+:[^\s"']+)`), hideUnlessMatch(marked)},
	{[]string{"bearer", "basic", "negotiate"}, lazyregexp.New(`(?i)(\b(?:bearer|basic|negotiate)(?:[ \t]+|%20|\+))([A-Za-z0-9+/=._~:-]{8,})`), hideUnlessMatch(authenticationWords)},
	// The part of a URL that allows posting to a chat service.
	{[]string{"hook"}, lazyregexp.New(`((?:hooks\.slack\.com/(?:services|workflows|triggers)|webhook\.office\.com|discord(?:app)?\.com/api/webhooks)/)([\w/@+-]+)`), hideUnlessMatch(marked)},
	// Environment variables as programs print them: in JSON, in Go's format, and in etcd's.
	{[]string{"value"}, lazyregexp.New(`(?i:\b(?:variable-)?(?:name|key)\\*"?[ \t]*:[ \t]*\\*"?)([A-Z_][A-Z0-9_]+)(?i:\\*"?[ \t]*,[ \t]*\\*"?(?:variable-)?value\\*"?[ \t]*:[ \t]*)(\[redacted\]|\\+"[^"\\\n]*|"(?:[^"\\\n]|\\.)*"?|[^\s,}\]"\\][^,}\]\n]*)`), variable},
	{[]string{"login", "sshpass"}, lazyregexp.New(`(\b(?:login|sshpass)\b(?:[^\n]*?[ \t])?-p[ \t]*)(` + value + `)`), hideUnlessMatch(marked)},
}

// authenticationWords matches words that follow "basic" and "bearer" in sentences.
var authenticationWords = lazyregexp.New(`(?i)^(?:authenticat|authori[sz]|credential|challenge|constraint|configuration|functionality|information|settings)[a-z]*[.:]?$`)

// harmless matches values that the rules for names would hide, but readers need: files, booleans, small numbers.
var harmless = lazyregexp.New(`^["']?(?:/(?:etc|var|run|usr|opt|srv|home|root|tmp|mnt|proc|sys|dev)/[\w./-]*|true|false|null|nil|<nil>|\d{1,4}|\[redacted\].*|\[\]?)?["']?,?$`)

// marked matches values hidden by an earlier rule.
var marked = lazyregexp.New(`^["']?\[redacted\]`)

// proxySchemes lists the schemes clients know. Other text before :// may be part of a password.
var proxySchemes = []string{"http", "https", "socks4", "socks4a", "socks5", "socks5h"}

// Proxy returns a proxy's address without everything before the last @: clients accept addresses without a scheme, and passwords
// with unescaped characters, which no URL parser can handle.
func Proxy(address string) string {
	at := strings.LastIndex(address, "@")
	if at < 0 {
		return address
	}
	shown := mark + address[at:]
	scheme, _, found := strings.Cut(address[:at], "://")
	if found && slices.Contains(proxySchemes, strings.ToLower(scheme)) {
		shown = scheme + "://" + shown
	}
	return shown
}

var (
	// namedProxy matches a proxy variable with its value: in an environment, in JSON, or as an item of a list of variables.
	namedProxy = lazyregexp.New(`(?i)(_proxy\\*["']?\s*(?:[=:]|,?\s*\\*["']?value\\*["']?\s*:)\s*\\*["']?)([^\s"'\\]+)`)
	// urlUser matches user:password@ in a URL; if the password contains a slash, the part before that must not be a port.
	urlUser = lazyregexp.New(`(://)(?:[^\s/@"'\\]*:[^\s/"'\\]*@|[^\s/@"'\\[]*:[^\s/"'\\@]*[^\s/"'\\@\d][^\s/"'\\@]*/[^\s"'\\]*@)`)
	// urlToken matches a user alone, as Git accepts tokens.
	urlToken = lazyregexp.New(`((?i:https?)://)[^\s/@"'\\]+@`)
	// bareUser matches user:password@ without a scheme. A port must follow: an image's digest also has colons around its @.
	bareUser = lazyregexp.New(`(^|[\s"'=,;(])[^\s/@"'\\:=,;(]+:[^\s/@"'\\]+(@[\w.-]+:\d{1,5}\b)`)
)

// URLs replaces the user and password of every URL and every proxy, and nothing else.
func URLs(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	text = namedProxy().ReplaceAllStringFunc(text, func(found string) string {
		groups := namedProxy().FindStringSubmatch(found)
		return groups[1] + Proxy(groups[2])
	})
	text = urlUser().ReplaceAllString(text, "${1}"+mark+"@")
	text = urlToken().ReplaceAllString(text, "${1}"+mark+"@")
	return bareUser().ReplaceAllString(text, "${1}"+mark+"${2}")
}
