// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import "strings"

// Unit takes the values out of the Environment= lines of a unit file, those of
// comments among them, as variable says. Lines that belong together become one,
// as a value may stand on another line than its name.
func Unit(text string, known ...string) string {
	var out, joined strings.Builder
	for line := range strings.Lines(text + "\n") {
		line = strings.TrimRight(line, " \t\r\n")
		if isComment(line) { // may stand between lines that belong together
			out.WriteString(unitLine(line) + "\n")
			continue
		}
		if joined.Len() > 0 {
			line = strings.TrimLeft(line, " \t")
		}
		if begun := strings.TrimRight(line, `\`); (len(line)-len(begun))%2 == 1 {
			joined.WriteString(strings.TrimRight(line[:len(line)-1], " \t") + " ")
			continue
		}
		out.WriteString(unitLine(joined.String()+line) + "\n")
		joined.Reset()
	}
	return Text(strings.TrimSuffix(out.String(), "\n")+unitLine(joined.String()), known...)
}

func isComment(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";")
}

var unitEnvironment = lazy(`^([ \t#;]*Environment[ \t]*=[ \t]*)(.*)$`)

func unitLine(line string) string {
	groups := unitEnvironment().FindStringSubmatch(line)
	if groups == nil {
		return line
	}
	list := words(groups[2])
	for i, word := range list {
		list[i] = assignment(word)
	}
	return groups[1] + strings.Join(list, " ")
}

// Variables takes the values out of an environment file, those of comments
// among them, as variable says. What is no assignment may be the end of one.
func Variables(text string, known ...string) string {
	var out strings.Builder
	for text != "" {
		var entry string
		if isComment(text) { // where a quote is just an apostrophe
			entry, text, _ = strings.Cut(text, "\n")
		} else {
			entry, text = cut(text, "\n")
		}
		entry = strings.TrimRight(entry, " \t\r")
		switch groups := fileVariable().FindStringSubmatch(entry); {
		case groups != nil:
			entry = groups[1] + groups[2] + "=" + variable(groups[2], groups[3])
		case entry != "" && !isComment(entry):
			entry = mark
		}
		out.WriteString(entry + "\n")
	}
	return Text(out.String(), known...)
}

var fileVariable = lazy(`(?s)^([ \t#;]*(?:export[ \t]+)?)([A-Za-z_]\w*)[ \t]*=[ \t]*(.*)$`)

// variable is the value of an environment variable as it may be shown: that of
// proxies and of flags without their secrets, that of paths, and no other.
func variable(name, value string) string {
	value = strings.ReplaceAll(value, "\\\n", " ")
	for _, quote := range []string{`"`, `'`} {
		if inner, quoted := strings.CutPrefix(value, quote); quoted {
			return quote + variable(name, strings.TrimSuffix(inner, quote)) + quote
		}
	}
	shown := mark
	switch {
	case strings.Contains(value, "\n"):
	case strings.HasSuffix(name, "_ARGS"):
		return strings.Join(arguments(words(value)), " ")
	case isProxy(name):
		shown = Proxy(value)
	case strings.HasSuffix(name, "PATH"):
		shown = value
	}
	if strings.Contains(shown, "=") { // another variable is on this line
		return mark
	}
	return shown
}

// assignment is NAME=VALUE, perhaps as a whole in quotes.
func assignment(word string) string {
	bare := strings.TrimLeft(word, `"'`)
	quote := word[:len(word)-len(bare)]
	name, value, set := strings.Cut(strings.TrimSuffix(bare, quote), "=")
	if !set || !variableName().MatchString(name) {
		return mark
	}
	return quote + name + "=" + variable(name, value) + quote
}

var variableName = lazy(`^[A-Za-z_]\w*$`)

// arguments takes out the values of secret flags: --password=x, and the word
// behind --password.
func arguments(list []string) []string {
	shown := make([]string, len(list))
	secret := false
	for i, word := range list {
		name, value, set := strings.Cut(strings.Trim(word, `"'\`), "=")
		isSecret := secretFlag().MatchString(name)
		switch {
		case secret:
			shown[i] = mark
		case isSecret && set && !harmless().MatchString(value):
			shown[i] = name + "=" + mark
		default:
			shown[i] = word
		}
		secret = isSecret && !set
	}
	return shown
}

// flags keeps of arguments the names of flags only.
func flags(list []string) []string {
	shown := make([]string, len(list))
	for i, word := range arguments(list) {
		name, _, set := strings.Cut(word, "=")
		switch {
		case !flagName().MatchString(name):
			shown[i] = mark
		case set:
			shown[i] = name + "=" + mark
		default:
			shown[i] = name
		}
	}
	return shown
}

var flagName = lazy(`^--[a-z][a-z-]*$`)

func words(text string) []string {
	var list []string
	for text != "" {
		var word string
		if word, text = cut(text, " \t\r\n"); word != "" {
			list = append(list, word)
		}
	}
	return list
}

// cut divides text at the first of the separators that stands neither in quotes
// nor behind a backslash, as systemd does. Quotes and backslashes stay. A quote
// that is not closed holds all the rest.
func cut(text, separators string) (before, after string) {
	var quote rune
	escaped := false
	for i, r := range text {
		switch {
		case escaped:
			escaped = false
		case r == '\\':
			escaped = true
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '"' || r == '\'':
			quote = r
		case strings.ContainsRune(separators, r):
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}
