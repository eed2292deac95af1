// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package fault splits a problem in two: a message with the problem and its place, and a remedy. They're shown on separate lines,
// and are separate fields in output for programs. A problem is an error with a remedy (New, WithRemedy), or a Finding of a check or
// a diagnosis. The code that finds a problem also writes its remedy, next to the message. docs/design/errors.md has the reasons.
package fault

import (
	"slices"
	"strings"

	"github.com/pkg/errors"
)

type remedied struct {
	error
	remedy string
}

func (e *remedied) Remedy() string { return e.remedy }
func (e *remedied) Unwrap() error  { return e.error }

// New returns an error with a message and a remedy.
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
