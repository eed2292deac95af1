// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"io/fs"
	"strings"
)

// Verb is the kind of an Action.
type Verb string

// The verbs of a plan.
const (
	Write   Verb = "write"
	Mkdir   Verb = "mkdir"
	Chmod   Verb = "chmod"
	Chown   Verb = "chown" // of a file, or of a directory with everything in it
	Remove  Verb = "remove"
	Reload  Verb = "reload units"
	Enable  Verb = "enable unit"
	Start   Verb = "start unit"
	Stop    Verb = "stop unit"
	Restart Verb = "restart unit"
	Pull    Verb = "pull image"

	Disable     Verb = "disable unit"
	Mask        Verb = "mask unit"
	Unmask      Verb = "unmask unit"
	Import      Verb = "import image"
	Pin         Verb = "pin image"
	Unpin       Verb = "unpin image"
	RemoveImage Verb = "remove image"
	LoadModule  Verb = "load module"
	Set         Verb = "set kernel parameter"
	SwapOff     Verb = "turn off swap"
	SwapOn      Verb = "turn on swap"
	Relabel     Verb = "restore SELinux context"

	Rename     Verb = "rename"
	RemoveTree Verb = "remove directory" // with everything in it
	Unmount    Verb = "unmount"
	RemovePod  Verb = "remove Pod"
)

// Action is one change, planned by a dry run or made by a run. Its object is one of Path, Unit, Image and Name; Reload has none.
type Action struct {
	Verb  Verb
	Path  string
	Unit  string
	Image string
	// Mode is the file's or directory's mode afterwards.
	Mode fs.FileMode
	// UID and GID are the new owner's.
	UID, GID int
	// Data is a file's content. It's empty for a secret file, so it can't be printed by mistake.
	Data   []byte
	Secret bool
	// Name is a Pod, a Leftover in the kernel's network configuration, a kernel module, a kernel parameter with its value, or a
	// swap area.
	Name string
	// NewPath is Path's new name.
	NewPath string
	// Entries lists a removed directory's entries, directories with a slash. If a mount stays in it, they're the entries beside
	// the mount.
	Entries []string
	// Opaque reports whether Data describes the content instead of holding it.
	Opaque bool
	// Created reports whether the file is new.
	Created bool
}

// String describes the change without a file's content.
func (a Action) String() string {
	switch a.Verb {
	case Write, Mkdir, Chmod:
		return fmt.Sprintf("%s %s %04o", a.Verb, a.Path, a.Mode.Perm())
	case Chown:
		return fmt.Sprintf("%s %s %d:%d", a.Verb, a.Path, a.UID, a.GID)
	case Rename:
		return fmt.Sprintf("%s %s to %s", a.Verb, a.Path, a.NewPath)
	default:
		return strings.TrimSpace(fmt.Sprintf("%s %s", a.Verb, a.Path+a.Unit+a.Image+a.Name))
	}
}
