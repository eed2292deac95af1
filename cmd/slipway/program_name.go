// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

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

// renamedError is err with its message renamed.
type renamedError struct {
	error
	program string
}

func (e renamedError) Error() string { return renamed(e.program, e.error.Error()) }
func (e renamedError) Unwrap() error { return e.error }

// named is err in the words of the name that the program was called by.
func (g *globals) named(err error) error {
	if err == nil {
		return nil
	}
	return renamedError{err, g.program}
}

// namedUI renames what phases say.
type namedUI struct{ ui.UI }

func (u namedUI) Printf(format string, args ...any) {
	u.UI.Printf("%s", renamed(u.Program(), fmt.Sprintf(format, args...)))
}

func (u namedUI) Warnf(format string, args ...any) {
	u.UI.Warnf("%s", renamed(u.Program(), fmt.Sprintf(format, args...)))
}

func (u namedUI) Start(phase string) (ui.UI, func(error)) {
	in, end := u.UI.Start(phase)
	return namedUI{in}, func(err error) {
		if err != nil {
			err = renamedError{err, u.Program()}
		}
		end(err)
	}
}
