// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/pkg/errors"

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
