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
	// Remedy says how to see the whole difference, and how to get Slipway's.
	Remedy string
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

// Warn warns of what is kept.
func (k Kept) Warn(u UI) {
	u.Warn(fmt.Sprintf("keeping %s, which differs from what this configuration makes: %s", k.Title(), k.Summary), k.Remedy)
}

// SayKept reports k to u: a plan shows it as a step, and every other UI warns.
func SayKept(u UI, k Kept) {
	if plan, ok := u.(interface{ Kept(k Kept) }); ok {
		plan.Kept(k)
		return
	}
	k.Warn(u)
}
