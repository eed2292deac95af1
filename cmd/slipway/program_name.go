// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/internal/ui"
)

// ownName begins every command of this program that a message names, in
// backticks: `slipway token create`. Who called the program by another name,
// through a link, reads that instead. TestCommandsInMessages holds the form.
const ownName = "`slipway "

// renamed puts the name that the program was called by into a message.
func renamed(program, text string) string {
	return strings.ReplaceAll(text, ownName, "`"+program+" ")
}

// shown is a message as its reader sees it: with the program's name, and
// without passwords of URLs, which libraries repeat when they fail.
func shown(program, text string) string { return renamed(program, redact.URLs(text)) }

// discreetWriter takes messages of libraries, a line at a time.
type discreetWriter struct{ to io.Writer }

func (w discreetWriter) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.to, redact.URLs(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

// shownError is an error with its message and remedy as shown.
type shownError struct {
	error
	program string
}

func (e shownError) Error() string { return shown(e.program, e.error.Error()) }
func (e shownError) Unwrap() error { return e.error }

// Remedy is empty if the error has none.
func (e shownError) Remedy() string { return shown(e.program, fault.Remedy(e.error)) }

// named is err in the words of the name that the program was called by.
func (g *globals) named(err error) error {
	if err == nil {
		return nil
	}
	return shownError{err, g.program}
}

// namedUI renames what phases say.
type namedUI struct{ ui.UI }

func (u namedUI) Printf(format string, args ...any) {
	u.UI.Printf("%s", shown(u.Program(), fmt.Sprintf(format, args...)))
}

func (u namedUI) Warnf(format string, args ...any) {
	u.UI.Warnf("%s", shown(u.Program(), fmt.Sprintf(format, args...)))
}

func (u namedUI) Warn(message, remedy string) {
	u.UI.Warn(shown(u.Program(), message), shown(u.Program(), remedy))
}

func (u namedUI) Nextf(format string, args ...any) {
	u.UI.Nextf("%s", shown(u.Program(), fmt.Sprintf(format, args...)))
}

func (u namedUI) Start(phase string) (ui.UI, func(error)) {
	in, end := u.UI.Start(phase)
	return namedUI{in}, func(err error) {
		if err != nil {
			err = shownError{err, u.Program()}
		}
		end(err)
	}
}
