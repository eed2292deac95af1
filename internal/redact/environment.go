// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"strings"

	"github.com/slipway-k8s/slipway/internal/lazyregexp"
)

// Unit removes the values of environment variables from a unit file, wherever they are
// set: in Environment= lines, before a command, in a comment. Continued lines become
// one, as a value may be on another line than its name.
func Unit(text string, known ...string) string {
	var out strings.Builder
	var code, note string // a line that is continued, and such a comment
	flush := func(line *string) {
		if *line != "" {
			out.WriteString(unitLine(strings.TrimRight(*line, " ")) + "\n")
			*line = ""
		}
	}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, " \t\r\n")
		open := &code
		if isComment(line) { // may be between continued lines
			open = &note
		} else {
			flush(&note)
		}
		if *open != "" {
			line = strings.TrimLeft(line, " \t#;")
		}
		if begun := strings.TrimRight(line, `\`); (len(line)-len(begun))%2 == 1 {
			*open += strings.TrimRight(line[:len(line)-1], " \t") + " "
			continue
		}
		out.WriteString(unitLine(*open+line) + "\n")
		*open = ""
	}
	flush(&note)
	flush(&code)
	if !strings.HasSuffix(text, "\n") {
		return Text(strings.TrimSuffix(out.String(), "\n"), known...)
	}
	return Text(out.String(), known...)
}

func isComment(line string) bool {
	line = strings.TrimLeft(line, " \t")
	return strings.HasPrefix(line, "#") || strings.HasPrefix(line, ";")
}

var (
	unitSetting = lazyregexp.New(`^([ \t#;]*)([A-Za-z_][\w-]*)([ \t]*=[ \t]*)(.*)$`)
	// unitName matches the name of a setting. Other names may be variables whose
	// line was broken in a way that systemd does not know.
	unitName    = lazyregexp.New(`^(?:[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*|X-[\w-]+)$`)
	unitSection = lazyregexp.New(`^[ \t]*(?:\[[\w-]+\])?$`)
)

// unitLine returns a line of a unit file as it may be shown.
func unitLine(line string) string {
	setting := unitSetting().FindStringSubmatch(line)
	switch {
	case setting != nil:
		return setting[1] + unitValue(setting[2], setting[3], setting[4])
	case isComment(line):
		return strings.Join(command(strings.Fields(line)), " ")
	case unitSection().MatchString(line):
		return line
	}
	return mark
}

func unitValue(name, equals, value string) string {
	switch name {
	case "Environment", "UnsetEnvironment":
		return name + equals + assignments(value)
	case "PassEnvironment":
		return name + equals + strings.Join(each(words(value), variableNameOnly), " ")
	case "SetCredential", "SetCredentialEncrypted", "StandardInputText", "StandardInputData":
		return name + equals + mark
	}
	switch {
	case unitName().MatchString(name):
		return name + equals + strings.Join(command(words(value)), " ")
	case variableName().MatchString(name):
		return name + equals + variable(name, value)
	}
	return mark
}

func each(list []string, shown func(string) string) []string {
	for i, word := range list {
		list[i] = shown(word)
	}
	return list
}

func variableNameOnly(word string) string {
	if variableName().MatchString(word) {
		return word
	}
	return mark
}

// assignments redacts the words of an Environment= line. A word that is not an
// assignment may be the end of a value with blanks. Then nobody knows which words are
// whole, and all values are hidden.
func assignments(value string) string {
	list := words(value)
	shown := make([]string, len(list))
	whole := true
	for i, word := range list {
		begin, inner, end := unquoted(word)
		name, value, set := strings.Cut(inner, "=")
		if !set || !variableName().MatchString(name) {
			whole, shown[i] = false, mark
			continue
		}
		shown[i] = begin + name + "=" + variable(name, value) + end
		list[i] = begin + name + "=" + mark + end
	}
	for i := range shown {
		if !whole && shown[i] != mark {
			shown[i] = list[i]
		}
	}
	return strings.Join(shown, " ")
}

// variableName matches names of variables in upper or lower case. Base64 before an equals
// sign has both.
var variableName = lazyregexp.New(`^(?:[A-Z_][A-Z0-9_]{0,63}|[a-z_][a-z0-9_]{0,63})$`)

// Variables removes the values from an environment file, also in comments. A line that
// is not an assignment may be the end of one, also in a comment.
func Variables(text string, known ...string) string {
	var out strings.Builder
	for text != "" {
		var entry string
		if isComment(text) { // in which a quote is just an apostrophe
			entry, text, _ = strings.Cut(text, "\n")
		} else {
			entry, text = cut(text, "\n")
		}
		out.WriteString(variablesEntry(strings.TrimRight(entry, " \t\r")) + "\n")
	}
	return Text(out.String(), known...)
}

var (
	fileVariable = lazyregexp.New(`(?s)^([ \t#;]*(?:export[ \t]+)?)([A-Za-z_]\w*)[ \t]*=[ \t]*(.*)$`)
	commentMarks = lazyregexp.New(`^[ \t]*[#;]+`)
)

func variablesEntry(entry string) string {
	if set := fileVariable().FindStringSubmatch(entry); set != nil && variableName().MatchString(set[2]) {
		return set[1] + set[2] + "=" + variable(set[2], set[3])
	}
	marks := commentMarks().FindString(entry)
	if strings.TrimSpace(entry) == marks {
		return entry
	}
	return strings.TrimLeft(marks+" "+mark, " ")
}
