// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"strings"
)

// Verb is what an Action does.
type Verb string

// The verbs of a plan.
const (
	Write   Verb = "write"
	Mkdir   Verb = "mkdir"
	Chmod   Verb = "chmod"
	Chown   Verb = "chown" // of a directory with all that is in it
	Remove  Verb = "remove"
	Reload  Verb = "reload units"
	Enable  Verb = "enable unit"
	Start   Verb = "start unit"
	Stop    Verb = "stop unit"
	Restart Verb = "restart unit"
	Pull    Verb = "pull image"
)

// Action is one change: what a dry run leaves out, or what a run has done. One
// of Path, Unit and Image says to what, except for Reload.
type Action struct {
	Verb  Verb
	Path  string
	Unit  string
	Image string
	// Mode is the mode of a file or directory afterwards.
	Mode fs.FileMode
	// UID and GID are the new owner's.
	UID, GID int
	// Data is a file's content. A secret one is not kept: nobody can print it
	// by mistake.
	Data   []byte
	Secret bool
	// Name is what is neither of these: a Pod, or what the kernel's network holds.
	Name string
	// Entries are what a removed folder held at its top, folders with a slash;
	// of a folder in which a mount stays, what was beside that.
	Entries []string
	// Created tells that there was no such file before.
	Created bool
}

// String says what would be done, without a file's content.
func (a Action) String() string {
	switch a.Verb {
	case Write, Mkdir, Chmod:
		return fmt.Sprintf("%s %s %04o", a.Verb, a.Path, a.Mode.Perm())
	case Chown:
		return fmt.Sprintf("%s %s %d:%d", a.Verb, a.Path, a.UID, a.GID)
	default:
		return strings.TrimSpace(fmt.Sprintf("%s %s", a.Verb, a.Path+a.Unit+a.Image+a.Name))
	}
}
