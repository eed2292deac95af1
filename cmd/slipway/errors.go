// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/pkg/errors"

// advised is an error and what to do about it.
type advised struct {
	error
	advice string
}

func (e advised) Error() string { return e.error.Error() + "; " + e.advice }
func (e advised) Unwrap() error { return e.error }

// withAdvice returns nil if err is nil, like the functions of pkg/errors.
func withAdvice(err error, advice string) error {
	if err == nil {
		return nil
	}
	return advised{err, advice}
}

// exitError is a result that scripts read from the exit code.
type exitError struct {
	code    int
	message string
}

func (e exitError) Error() string { return e.message }

// codeOf is the exit code for err: 1, as scripts expect, except for an exitError; 0 for nil.
func codeOf(err error) int {
	var e exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	}
	return 1
}
