// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import "context"

// Cleanup is what only `reset` does: it takes away what a node leaves. Each
// method can be called again after it was cut off.
type Cleanup interface {
	// RemoveTree deletes a folder with all that is in it. Below it no symlink
	// is followed and no mount point is crossed, whatever happens there
	// meanwhile: a mount stays, with what is in it. A folder that Stays is
	// emptied only. One that does not exist is no error, and anything else is
	// a *KindError. What can be removed is removed, whatever else fails.
	RemoveTree(path string) (Removal, error)
	// Stays tells whether a folder is more than this tool's: a mount point, a
	// symlink to another folder, or one that was there before EnsureDir made
	// its mode narrower, which it gets back. It is an error where RemoveTree
	// will refuse a symlink.
	Stays(path string) (bool, error)
	// Made tells whether this tool made a file or folder where nothing was. It
	// is false where the file system keeps no such note.
	Made(path string) bool
	// Unchanged reports whether this tool wrote a file where nothing was, and
	// nobody has edited it since. It is false where that is not known.
	Unchanged(path string) bool
	// RemoveEmpty deletes a folder if it is empty. One that is not, a mount
	// point, a symlink, and what is no folder all stay, without an error.
	RemoveEmpty(path string) (removed bool, err error)

	// Mounts lists the mount points below a folder, the deepest first. Symlinks
	// on the way to the folder are followed, and the paths begin with folder
	// nevertheless. One that does not exist has none.
	Mounts(folder string) ([]string, error)
	// Unmount takes a mount away, with flags by their names in umount2(2), such
	// as MNT_FORCE; without any at once, even if something uses it
	// (MNT_DETACH). What is not mounted is no error.
	Unmount(path string, flags []string) error

	// Pods lists the Pods that the runtime knows, whether they run or not.
	Pods(ctx context.Context, socket string) ([]Pod, error)
	// RemovePods kills what runs in Pods, and removes them with their
	// containers and their network, many side by side: first those with a
	// network of their own, for whose removal the network plugin may need the
	// others. Failures do not keep it from removing the rest. A Pod that the
	// runtime does not know is no error.
	RemovePods(ctx context.Context, socket string, pods []Pod) (removed []Pod, err error)

	// NetworkLeftovers lists what kube-proxy, the kubelet and a network plugin
	// with a bridge of this name have left in the kernel.
	NetworkLeftovers(ctx context.Context, bridge string) ([]Leftover, error)
	// RemoveLeftover removes one of them, and nothing that is not theirs.
	RemoveLeftover(ctx context.Context, l Leftover) error
}

// Removal is what RemoveTree did.
type Removal struct {
	// Changed tells that something was removed.
	Changed bool
	// Kept are the mount points below the folder, but not those within others.
	Kept []string
}

// Pod is a Pod of the container runtime.
type Pod struct {
	ID, Namespace, Name string
	// HostNetwork tells that it has no network of its own.
	HostNetwork bool
}

func (p Pod) String() string { return p.Namespace + "/" + p.Name }
