// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"path"
)

// Kept is a file or an object that differs from what Slipway would make, and
// stays as it is. Nothing in it is secret.
type Kept struct {
	// Path is that of a file. An object has the others.
	Path, Kind, Namespace, Name string
	// Summary says what differs, in one line.
	Summary string
	// Advice says how to see all of the difference, and how to get Slipway's.
	Advice string
	// Now and Ours are the whole texts to compare.
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

// SayKept tells u of k: what only plans shows it as a part of the plan, and all
// others warn.
func SayKept(u UI, k Kept) {
	if plan, ok := u.(interface{ Kept(k Kept) }); ok {
		plan.Kept(k)
		return
	}
	u.Warnf("%s", k)
}
