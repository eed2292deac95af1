// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package diagnose

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used: most runs of
// the program use none.
type pattern func() *regexp.Regexp

func lazy(text string) pattern {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
