// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"path"
)

// Kept is a file or an object that differs from what Slipway would write, and is
// left as it is. It contains no secret.
type Kept struct {
	// Path is set for a file, the others for an object.
	Path, Kind, Namespace, Name string
	// Summary says what differs, in one line.
	Summary string
	// Advice says how to see the whole difference, and how to get Slipway's.
	Advice string
	// Now and Ours are the complete texts to compare.
	Now, Ours string
}

// Title names what is kept.
func (k Kept) Title() string {
	if k.Path != "" {
		return k.Path
	}
	return k.Kind + " " + path.Join(k.Namespace, k.Name)
}

func (k Kept) String() string {
	return fmt.Sprintf("keeping %s, which differs from what this configuration makes: %s. %s", k.Title(), k.Summary, k.Advice)
}

// SayKept reports k to u: a plan shows it as a step, and every other UI warns.
func SayKept(u UI, k Kept) {
	if plan, ok := u.(interface{ Kept(k Kept) }); ok {
		plan.Kept(k)
		return
	}
	u.Warnf("%s", k)
}
