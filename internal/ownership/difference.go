// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/redact"
	"github.com/slipway-k8s/slipway/preflight"
)

// Shown is a file an operator may have edited, without its secrets.
func Shown(data []byte) string { return redact.Text(redact.Document(string(data))) }

// LineDifference names the lines found in only one of two texts. It omits values no plan shows, such as environment variables'.
func LineDifference(have, wanted []byte) string {
	there, asked := Shown(have), Shown(wanted)
	if there == asked {
		return "values that are not shown, such as those of environment variables"
	}
	only := func(a, b string) string {
		var lines []string
		others := strings.Split(b, "\n")
		for line := range strings.Lines(a) {
			if line = strings.TrimRight(line, "\n"); !slices.Contains(others, line) {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		const most = 5
		if len(lines) > most {
			lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
		}
		return strings.Join(lines, ", ")
	}
	var parts []string
	if text := only(there, asked); text != "" {
		parts = append(parts, preflight.OnlyThere+text)
	}
	if text := only(asked, there); text != "" {
		parts = append(parts, preflight.OnlyAsked+text)
	}
	if len(parts) == 0 {
		return "the same lines in another order"
	}
	return strings.Join(parts, "; ")
}
