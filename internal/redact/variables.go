// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"regexp"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// harmlessVariables are the environment variables whose values are shown, if they have
// the given form. All others are hidden: nobody knows what an administrator calls a
// password.
var harmlessVariables = map[string]func(value string) string{
	"PATH": plainValue, "HOME": plainValue, "TZ": plainValue, "LANG": plainValue, "LANGUAGE": plainValue, "LC_ALL": plainValue,
	"GOMAXPROCS": plainValue, "GOMEMLIMIT": plainValue, "GOGC": plainValue, "GOTRACEBACK": plainValue, "GODEBUG": debugValue,
	"NO_PROXY": plainValue, "no_proxy": plainValue,
	"HTTP_PROXY": proxyValue, "HTTPS_PROXY": proxyValue, "ALL_PROXY": proxyValue,
	"http_proxy": proxyValue, "https_proxy": proxyValue, "all_proxy": proxyValue,
}

// kubeletArguments matches the variables that the kubelet's unit passes on as flags.
var kubeletArguments = lazyregexp.New(`^KUBELET_(?:[A-Z]+_)*ARGS$`)

// The forms of harmless values. They have no blank and no equals sign, as another value
// may begin there.
var (
	plainForm = lazyregexp.New(`^[\w.,:/*@%+$~{}\[\]-]*$`)
	debugForm = lazyregexp.New(`^[a-z0-9]+=[\w.-]+(?:,[a-z0-9]+=[\w.-]+)*$`)
	proxyForm = lazyregexp.New(`^(?:(?i:https?|socks[45][ah]?)://)?(?:\[redacted\]@)?[\w.-]*(?:\[[0-9a-fA-F:]+\])?(?::\d{1,5})?/?$`)
)

func plainValue(value string) string { return ofForm(plainForm(), value) }
func debugValue(value string) string { return ofForm(debugForm(), value) }
func proxyValue(value string) string { return ofForm(proxyForm(), Proxy(value)) }

// ofForm hides a value that does not have the form.
func ofForm(form *regexp.Regexp, value string) string {
	if form.MatchString(value) {
		return value
	}
	return mark
}

// variable returns the value of an environment variable, with the quotes around it, as
// it may be shown.
func variable(name, value string) string {
	value = strings.ReplaceAll(value, "\\\n", " ")
	if begin, inner, end := unquoted(value); begin != "" {
		return begin + variable(name, inner) + end
	}
	switch show := harmlessVariables[name]; {
	case value == "":
		return value
	case strings.ContainsAny(value, "\n\r"):
		return mark
	case kubeletArguments().MatchString(name):
		return kubeletFlags(value)
	case show != nil:
		return show(value)
	}
	return mark
}

// kubeletFlags keeps flags, and the word after a flag without a value. It hides the
// values of secret flags and everything else.
func kubeletFlags(value string) string {
	list := arguments(words(escapedBlank().ReplaceAllString(value, "$1")))
	open := false
	for i, word := range list {
		bare := strings.TrimLeft(word, `"'`)
		isFlag := strings.HasPrefix(bare, "-")
		if strings.Contains(word, `\`) || !isFlag && !open && !reference().MatchString(bare) {
			list[i] = mark
		}
		open = isFlag && !strings.Contains(bare, "=")
	}
	return strings.Join(list, " ")
}

var (
	escapedBlank = lazyregexp.New(`\\([ \t"'])`)
	reference    = lazyregexp.New(`^\$\{?\w+\}?["']?$`)
)

// arguments hides the values of secret flags: --password=x, and the word after
// --password.
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

// flags keeps only the names of flags.
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

var flagName = lazyregexp.New(`^--[a-z][a-z-]*$`)

// command redacts the arguments of a program, which may be a shell that sets variables.
func command(list []string) []string {
	shown := arguments(list)
	for i, word := range shown {
		shown[i] = commandWord(word)
	}
	return shown
}

func commandWord(word string) string {
	if begin, inner, end := unquoted(word); begin != "" {
		return begin + strings.Join(command(words(inner)), " ") + end
	}
	set := setsVariable
	if strings.HasPrefix(word, "-") {
		set = flagSetsVariable
	}
	if at := set().FindStringSubmatchIndex(word); at != nil {
		if value := word[at[1]:]; !harmless().MatchString(value) && strings.Trim(value, "=") != "" {
			return word[:at[1]] + variable(word[at[2]:at[3]], value)
		}
		return word
	}
	if parts := strings.Fields(word); len(parts) > 1 { // after an apostrophe, or lines of a script
		return strings.Join(command(parts), " ")
	}
	return word
}

var (
	// setsVariable matches the first variable of a word: A=b, \"A=b, {A=b.
	setsVariable = lazyregexp.New(`(?:^|[^\w.$-])([A-Za-z_]\w*)=`)
	// flagSetsVariable matches the variable of a flag such as --env=A=b, but not keys
	// of settings such as those of --feature-gates.
	flagSetsVariable = lazyregexp.New(`(?:[=,]|^-e)([A-Z_][A-Z0-9_]+)=`)
)

// unquoted splits a word in quotes into the quotes and what is inside. A quote that is
// not closed contains all of the rest.
func unquoted(text string) (begin, inner, end string) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return "", text, ""
	}
	if first, rest := cut(text, " \t\r\n"); first != text || rest != "" {
		return "", text, ""
	}
	begin = text[:1]
	if inner, closed := strings.CutSuffix(text[1:], begin); closed {
		return begin, inner, begin
	}
	return begin, text[1:], ""
}

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

// cut splits text at the first separator that is neither in quotes nor after a
// backslash, as systemd does. Quotes and backslashes stay. A quote that is not closed
// contains all of the rest.
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
