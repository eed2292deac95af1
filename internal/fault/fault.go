// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault splits a problem in two: a message with the problem and its place, and a remedy. They're shown on separate lines,
// and are separate fields in output for programs.
package fault

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
)

// Fault is a problem to report. Neither part holds a secret.
type Fault struct {
	Message string `json:"message"`
	// Remedy is in the imperative; empty if there's nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// String is the message and, on an indented line of its own, the remedy.
func (f Fault) String() string {
	if f.Remedy == "" {
		return f.Message
	}
	return f.Message + "\n  " + f.Remedy
}

type remedied struct {
	error
	remedy string
}

func (e *remedied) Remedy() string { return e.remedy }
func (e *remedied) Unwrap() error  { return e.error }

func New(message, remedy string) error { return WithRemedy(errors.New(message), remedy) }

// WithRemedy adds a remedy to err. The error's text doesn't change: code that prints errors gets the remedy from Remedy. nil
// stays nil.
func WithRemedy(err error, remedy string) error {
	if err == nil {
		return nil
	}
	return &remedied{err, remedy}
}

// Remedy returns the remedy of err, even if it's wrapped: the result of the outermost method Remedy() string. For joined errors,
// it's each error's remedy, without repetition. It's empty if there's none.
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

// Of returns err's text and remedy as a Fault.
func Of(err error) Fault { return Fault{err.Error(), Remedy(err)} }
