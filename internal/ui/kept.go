// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"fmt"
	"path"
)

// Kept is a file or object that differs from Slipway's version, and is left unchanged. It contains no secret.
type Kept struct {
	// Path is set for a file, the others for an object.
	Path, Kind, Namespace, Name string
	// Summary describes the difference in one line.
	Summary string
	// Remedy says how to see the whole difference, and how to get Slipway's version.
	Remedy string
	// Now and Ours are the complete texts to compare.
	Now, Ours string
}

func (k Kept) Title() string {
	if k.Path != "" {
		return k.Path
	}
	return k.Kind + " " + path.Join(k.Namespace, k.Name)
}

func (k Kept) Warn(u UI) {
	u.Warn(fmt.Sprintf("keeping %s, which differs from what this configuration makes: %s", k.Title(), k.Summary), k.Remedy)
}

// SayKept reports k to u: a plan shows it as a step, every other UI warns.
func SayKept(u UI, k Kept) {
	if plan, ok := u.(interface{ Kept(k Kept) }); ok {
		plan.Kept(k)
		return
	}
	k.Warn(u)
}
