// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// FileWriter changes files, directories and mounts. Every path is absolute. Each method can be called again after an
// interruption.
type FileWriter interface {
	// WriteFile makes path hold data with mode, and reports whether it changed anything: a file that has both already is left
	// alone. The change is atomic and durable: a new inode that never had a wider mode, fsync, rename, fsync of the directory. A
	// symlink, or anything but a regular file, at path is an error. Its directory may be a symlink to a directory: people move
	// /var/lib/kubelet to a bigger disk that way.
	WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error)
	// WriteSecret is WriteFile with mode 0600, for secrets a plan must not show: private keys, and kubeconfigs with a key. A key
	// that others must read, because a component runs as its own user, goes through WriteFile with a wider mode; a plan
	// recognizes it by its content.
	WriteSecret(path string, data []byte) (changed bool, err error)
	// WriteStream is WriteSecret for files too large for memory, such as a database snapshot: fill writes the content. It always
	// replaces an existing file; if fill or a write fails, the old file stays as it was. fill must not write to this host by
	// other methods. A plan doesn't call fill.
	WriteStream(path string, fill func(w io.Writer) error) error
	// WriteTree makes a directory at path with everything fill puts into it. fill gets this process's path of an empty directory
	// with mode 0700, which becomes path once its content is on disk. An existing path is an error (fs.ErrExist). A plan doesn't
	// call fill, so it doesn't know the directory's content.
	WriteTree(path string, fill func(dir string) error) error
	// WriteSet writes several large files, all or none: fill calls put once for each, and none is in place before fill has
	// returned nil and all are on disk. Content that differs from the announcement is an error. Callers leave out files that
	// HasFile finds. A plan doesn't call fill.
	WriteSet(files []SetFile, fill func(put func(path string, content io.Reader) error) error) error
	// Rename moves a file or directory, durably, within one file system. If only the new path exists, the move is already done.
	// It's an error if both exist (fs.ErrExist) or neither (fs.ErrNotExist), and so is a mount point.
	Rename(from, to string) (changed bool, err error)
	// EnsureDir makes path a directory with mode, and its missing parents with 0755. An existing directory keeps its mode unless
	// that's wider than mode; a directory with the sticky bit, such as /tmp, is shared on purpose and always keeps it. A symlink
	// to a directory counts as that directory; anything else is an error.
	EnsureDir(path string, mode fs.FileMode) error
	// Remove deletes one file or empty directory. A missing path isn't an error.
	Remove(path string) error
	// RemoveEmpty deletes an empty directory. Anything else stays, without an error: full directories, mount points, symlinks,
	// files, and directories on a read-only file system.
	RemoveEmpty(path string) (removed bool, err error)
	// RemoveTree deletes a directory with everything in it. Below it, it follows no symlink and crosses no mount point, even if
	// other programs work there meanwhile: a mount stays, with its content. A directory that Stays is only emptied. A missing
	// directory isn't an error; anything else is a *KindError. After a failure it still removes the rest.
	RemoveTree(path string) (Removal, error)
	// SyncFiles makes durable what other programs have written to the file system of an existing path: daemons such as the kubelet
	// leave that to the kernel. Do it before a change that needs their files.
	SyncFiles(path string) error
	// Unmount removes a mount, with flags named as in umount2(2), such as MNT_FORCE; without flags at once, even if it's in use
	// (MNT_DETACH). A path that isn't mounted isn't an error.
	Unmount(path string, flags []string) error
}

// OwnerWriter gives files to users other than root, who may plant links and other names of root's files wherever they can write.
// So it sets an owner by the checked file's descriptor, never by a path and never through a link somebody else has made.
type OwnerWriter interface {
	// WriteOwned is WriteFile for a file that belongs to owner from its first byte on. It replaces somebody else's file.
	WriteOwned(path string, data []byte, mode fs.FileMode, owner Owner) (changed bool, err error)
	// SetOwner sets the owner and mode of an existing regular file; anything else at path is a *KindError. It refuses a file with
	// another owner and another name (a hard link).
	SetOwner(path string, owner Owner, mode fs.FileMode) error
	// SetTreeOwner gives away a directory with everything in it, the directory last: if it belongs to owner, it's complete and is
	// left alone. Anything but a directory or regular file, or in another mount, keeps its owner and is returned. Files with
	// other names are refused as by Give. path itself may be a symlink made by root.
	SetTreeOwner(path string, owner Owner) (kept []string, err error)
	// LockAccounts takes the lock that useradd(8) and others hold while they change /etc/passwd and /etc/group (lckpwdf(3)). It
	// waits for some seconds.
	LockAccounts() (release func(), err error)
}

// UnitWriter gives orders to systemd. Each method returns when the job has ended. On a host without systemd, the error is
// ErrNoSystemd.
type UnitWriter interface {
	// ReloadUnits makes systemd read all unit files again.
	ReloadUnits(ctx context.Context) error
	// OrderUnit's changes of a unit's state at boot are durable.
	OrderUnit(ctx context.Context, order UnitOrder, name string) error
}

// FetchNotes is the directory with a note for each unfinished PullImage and ImportImages.
const FetchNotes = "/var/lib/slipway/fetches"

// RuntimeWriter gives orders to the container runtime, at a socket as in RuntimeReader.
type RuntimeWriter interface {
	// RepairInterruptedFetches makes up for fetches of images that ended early. After a power cut, the runtime has images whose
	// files are lost, so it removes all that were being fetched. Call it before asking for images in order to fetch any.
	RepairInterruptedFetches(ctx context.Context, socket string) error
	// PullImage makes the runtime pull an image, durably. Only ctx bounds it.
	PullImage(ctx context.Context, socket, image string) error
	// ImportImages gives containerd images from an archive (a tar of an OCI layout) that archive writes, and pins them, durably.
	// names are the archive's images. A plan doesn't call archive.
	ImportImages(ctx context.Context, socket string, names []string, archive func(w io.Writer) error) error
	// PinImage pins or unpins an image of containerd by its name.
	PinImage(ctx context.Context, socket, image string, pinned bool) error
	// RemoveImage removes an image by its name.
	RemoveImage(ctx context.Context, socket, image string) error
	// StopContainer asks a container to exit, and kills it after grace. The kubelet restarts a static Pod's containers.
	StopContainer(ctx context.Context, socket, id string, grace time.Duration) error
	// RemoveExited removes exited containers of a name in a namespace's Pods. The kubelet delays a restart (CrashLoopBackOff) by
	// the earlier containers it finds; if there are none, it doesn't.
	RemoveExited(ctx context.Context, socket, namespace, name string) error
	// RemovePods kills the Pods' processes, and removes the Pods with their containers and their network, many side by side:
	// first Pods with their own network, because the network plugin may need the others to remove it. After a failure it still
	// removes the rest. A Pod the runtime doesn't know isn't an error.
	RemovePods(ctx context.Context, socket string, pods []Pod) (removed []Pod, err error)
}

// ProcSys is where the kernel shows its parameters: net.ipv4.ip_forward is the file net/ipv4/ip_forward below it.
const ProcSys = "/proc/sys/"

// KernelWriter changes settings of the running kernel. None of it outlives a boot, except files' SELinux contexts.
type KernelWriter interface {
	// SetParameter sets a kernel parameter, named by its path below /proc/sys, and reports whether it had another value.
	SetParameter(name, value string) (changed bool, err error)
	// LoadModule loads a kernel module and its dependencies.
	LoadModule(ctx context.Context, name string) error
	// SwapOff stops using an area as swap: a device or file, as Swap lists it.
	SwapOff(area string) error
	// SwapOn uses an area as swap again.
	SwapOn(area string) error
	// RestoreContexts sets the policy's SELinux contexts on paths and everything below them.
	RestoreContexts(ctx context.Context, paths []string) error
}

// NetworkWriter changes the kernel's network configuration.
type NetworkWriter interface {
	// RemoveLeftover removes a leftover that NetworkLeftovers listed.
	RemoveLeftover(ctx context.Context, l Leftover) error
}

// DiskTester tests a directory's file system by writing to it. It leaves nothing behind.
type DiskTester interface {
	// ProbeWrite goes through a write's steps in an existing directory: it creates a small file, syncs it, and renames it. Both
	// are names of a file being written, which LeftoverOf recognizes.
	ProbeWrite(dir string) error
	// SyncTimes appends blocks to a file in an existing directory, as etcd does to its log, each followed by fdatasync, and
	// returns how long each took. It ends with ctx, or after a hundred.
	SyncTimes(ctx context.Context, dir string) ([]time.Duration, error)
}
