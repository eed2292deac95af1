// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault describes what is wrong in two parts: a message, which says
// what is wrong and where, and a remedy, which says what to do about it. They
// are shown on lines of their own, and are separate fields in output for
// programs.
package fault

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Fault is something that is wrong. Neither part holds a secret.
type Fault struct {
	Message string `json:"message"`
	// Remedy is in the imperative; empty if there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// String is the message and, indented on a line of its own, the remedy.
func (f Fault) String() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + "\n  " + f.Remedy
}

// remedied is an error with a remedy.
type remedied struct {
	error
	remedy string
}

func (e *remedied) Remedy() string { return e.remedy }
func (e *remedied) Unwrap() error  { return e.error }

// New returns an error with a message and a remedy.
func New(message, remedy string) error { return WithRemedy(errors.New(message), remedy) }

// WithRemedy adds to err what to do about it. The text of the error does not change: code
// that prints errors gets the remedy from Remedy. nil stays nil.
func WithRemedy(err error, remedy string) error {
	if err == nil {
		return nil
	}
	return &remedied{err, remedy}
}

// Remedy returns what to do about err, also if it was wrapped: the result of the outermost
// method Remedy() string. Of joined errors, it has the remedy of each, once. It is empty if
// there is none.
func Remedy(err error) string {
	switch e := err.(type) { //nolint:errorlint // it unwraps by itself, because errors.As finds only one of joined errors
	case interface{ Remedy() string }:
		return e.Remedy()
	case interface{ Unwrap() error }:
		return Remedy(e.Unwrap())
	case interface{ Unwrap() []error }:
		var remedies []string
		for _, part := range e.Unwrap() {
			if remedy := Remedy(part); remedy != "" && !slices.Contains(remedies, remedy) {
				remedies = append(remedies, remedy)
			}
		}
		return strings.Join(remedies, "; ")
	}
	return ""
}

// Of returns err as a Fault: its text, and what to do about it.
func Of(err error) Fault { return Fault{err.Error(), Remedy(err)} }
