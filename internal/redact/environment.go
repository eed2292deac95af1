// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// The forms of harmless values. They have no blanks or equals signs, as another value may begin there.
var (
	plainForm = lazyregexp.New(`^[\w.,:/*@%+$~{}\[\]-]*$`)
	debugForm = lazyregexp.New(`^[a-z0-9]+=[\w.-]+(?:,[a-z0-9]+=[\w.-]+)*$`)
	proxyForm = lazyregexp.New(`^(?:(?i:https?|socks[45][ah]?)://)?(?:\[redacted\]@)?[\w.-]*(?:\[[0-9a-fA-F:]+\])?(?::\d{1,5})?/?$`)
)

// harmlessVariables lists variables whose values may be shown in the given form. Any other variable may be a password.
var harmlessVariables = map[string]lazyregexp.Pattern{
	"PATH": plainForm, "HOME": plainForm, "TZ": plainForm, "LANG": plainForm, "LANGUAGE": plainForm, "LC_ALL": plainForm,
	"GOMAXPROCS": plainForm, "GOMEMLIMIT": plainForm, "GOGC": plainForm, "GOTRACEBACK": plainForm, "GODEBUG": debugForm,
	"NO_PROXY": plainForm, "no_proxy": plainForm,
	"HTTP_PROXY": proxyForm, "HTTPS_PROXY": proxyForm, "ALL_PROXY": proxyForm,
	"http_proxy": proxyForm, "https_proxy": proxyForm, "all_proxy": proxyForm,
}

// kubeletArguments matches the variables that the kubelet's unit passes on as flags.
var kubeletArguments = lazyregexp.New(`^KUBELET_(?:[A-Z]+_)*ARGS$`)

// variable returns a presentable value of an environment variable, with the quotes around it.
func variable(name, value string) string {
	begin, inner, end := unquoted(value)
	form := harmlessVariables[name]
	switch {
	case inner == "":
		return value
	case kubeletArguments().MatchString(name):
		return begin + strings.Join(command(strings.Fields(inner), true), " ") + end
	case strings.HasSuffix(strings.ToLower(name), "_proxy"):
		inner = Proxy(inner)
	}
	if form == nil || !form().MatchString(inner) {
		inner = mark
	}
	return begin + inner + end
}

// unquoted splits a quoted value into its quotes and the text inside. The closing quote may be missing.
func unquoted(text string) (begin, inner, end string) {
	if text == "" || text[0] != '"' && text[0] != '\'' {
		return "", text, ""
	}
	inner, closed := strings.CutSuffix(text[1:], text[:1])
	if closed {
		end = text[:1]
	}
	return text[:1], inner, end
}

var (
	reference = lazyregexp.New(`^\$\{?\w+\}?["']?$`)
	// secretFlag matches a flag with a secret value.
	secretFlag = lazyregexp.New(`(?i)^--?` + secretName + `$`)
	// setsVariable matches a flag that sets a variable, such as --env=A=b, but not --feature-gates=A=true,B=false.
	setsVariable = lazyregexp.New(`(?:[=,]|^-e)[A-Z_][A-Z0-9_]+=`)
)

// command hides the values of variables and secret flags, and arguments with blanks, such as scripts; with onlyFlags, also every
// other word, except after a flag without a value.
func command(list []string, onlyFlags bool) []string {
	secret, open := false, false // the word before is a secret flag, or any flag, without its value
	for i, word := range list {
		name, value, set := strings.Cut(word, "=")
		bare := strings.Trim(name, `"'\`)
		isFlag, isSecret := strings.HasPrefix(bare, "-"), secretFlag().MatchString(bare)
		switch {
		case secret || strings.ContainsAny(name, " \t\n"),
			onlyFlags && (strings.Contains(word, `\`) || !isFlag && !open && !reference().MatchString(word)):
			list[i] = mark
		case set && !isFlag:
			list[i] = name + "=" + variable(name, value)
		case set && (isSecret && !harmless().MatchString(value) || strings.ContainsAny(value, " \t\n") || setsVariable().MatchString(word)):
			list[i] = name + "=" + mark
		}
		secret, open = isSecret && !set, isFlag && !set
	}
	return list
}

// words splits text at blanks outside quotes, as systemd does. An unclosed quote contains all the rest.
func words(text string) []string { return word().FindAllString(text, -1) }

var (
	word = lazyregexp.New(`(?s)(?:` + quoted + `|[^\\"'\s])+`)
	// entry matches an entry of an environment file, where quotes may extend over several lines.
	entry   = lazyregexp.New(`(?s)(?:` + quoted + `|[^\\"'\n])+`)
	comment = lazyregexp.New(`(?m)^[ \t]*[#;].*\n?`)
)

const quoted = `\\.|\\\z|"(?:\\.|[^\\"])*(?:"|\\?\z)|'(?:\\.|[^\\'])*(?:'|\\?\z)`

// joined leaves out comments, and joins continued lines.
func joined(text string) (notice, code string) {
	text = strings.ReplaceAll(text, "\r", "")
	code = comment().ReplaceAllString(text, "")
	if code != text {
		notice = "# comments: " + mark + "\n"
	}
	return notice, strings.ReplaceAll(code, "\\\n", " ")
}

// Unit hides the values of environment variables anywhere in a unit file, and leaves out its comments.
func Unit(text string, known ...string) string {
	out, code := joined(text)
	for line := range strings.Lines(code) {
		shown := strings.TrimRight(line, "\n")
		out += unitLine(strings.TrimRight(shown, " \t")) + line[len(shown):]
	}
	return Text(out, known...)
}

var (
	unitSetting = lazyregexp.New(`^[ \t]*([A-Za-z_][\w-]*)[ \t]*=[ \t]*(.*)$`)
	// unitName matches the name of a setting. Other names may be variables, on lines broken in a way systemd doesn't know.
	unitName    = lazyregexp.New(`^(?:[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*|X-[\w-]+)$`)
	unitSection = lazyregexp.New(`^[ \t]*(?:\[[\w-]+\])?$`)
)

// unitLine returns a presentable line of a unit file.
func unitLine(line string) string {
	if unitSection().MatchString(line) {
		return line
	}
	setting := unitSetting().FindStringSubmatch(line)
	switch {
	case setting == nil || !unitName().MatchString(setting[1]):
		return mark
	case setting[1] == "Environment":
		return setting[1] + "=" + assignments(words(setting[2]))
	case strings.HasPrefix(setting[1], "SetCredential") || strings.HasPrefix(setting[1], "StandardInput"):
		return setting[1] + "=" + mark
	}
	return setting[1] + "=" + strings.Join(command(words(setting[2]), false), " ")
}

// variableName matches names of variables in upper or lower case. Base64 before an equals sign has both.
var variableName = lazyregexp.New(`^(?:[A-Z_][A-Z0-9_]{0,63}|[a-z_][a-z0-9_]{0,63})$`)

// assignment returns a presentable NAME=value, and reports whether text is an assignment.
func assignment(text string) (string, bool) {
	begin, inner, end := unquoted(text)
	name, value, set := strings.Cut(inner, "=")
	if name = strings.TrimSpace(name); !set || !variableName().MatchString(name) {
		return mark, false
	}
	return begin + name + "=" + variable(name, strings.TrimSpace(value)) + end, true
}

// assignments returns presentable words of an Environment= line. A word that isn't an assignment may be the end of a value with
// blanks: then all are hidden, as each may be only a part.
func assignments(list []string) string {
	for i, word := range list {
		shown, is := assignment(word)
		if !is {
			return mark
		}
		list[i] = shown
	}
	return strings.Join(list, " ")
}

// Variables hides an environment file's values, and leaves out its comments. Other lines may be the end of an assignment.
func Variables(text string, known ...string) string {
	out, code := joined(text)
	for _, line := range entry().FindAllString(code, -1) {
		if line = strings.TrimSpace(line); line != "" {
			shown, _ := assignment(strings.TrimPrefix(line, "export "))
			out += shown + "\n"
		}
	}
	return Text(out, known...)
}
