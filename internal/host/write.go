// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"io"
	"io/fs"
	"time"
)

// FileWriter changes files, directories and mounts. Every path is absolute.
// Each method can be called again after it was interrupted.
type FileWriter interface {
	// WriteFile makes path hold data with mode, and reports whether it changed
	// anything: a file that has both already is left alone. The change is atomic
	// and durable: a new inode that never had a wider mode, fsync, rename, fsync
	// of the directory. A path that is a symlink or not a regular file is an
	// error. Its directory may be a symlink to one: people move /var/lib/kubelet
	// to a bigger disk that way.
	WriteFile(path string, data []byte, mode fs.FileMode) (changed bool, err error)
	// WriteSecret is WriteFile with mode 0600, for secrets that a plan must not
	// show: private keys, and kubeconfigs with a key. A key that others must read,
	// because a component runs as its own user, goes through WriteFile with a
	// wider mode; a plan recognizes it by its content.
	WriteSecret(path string, data []byte) (changed bool, err error)
	// WriteStream is WriteSecret for a file that is too large for memory, such
	// as a snapshot of a database: fill writes the content. An existing file is
	// replaced, always; if fill or a write fails, it stays as it was. fill must
	// not write to this host by other methods. A plan does not call fill.
	WriteStream(path string, fill func(w io.Writer) error) error
	// WriteTree makes a directory at path with all that fill puts into it. fill
	// gets the path, for this process, of an empty directory with mode 0700,
	// which becomes path once everything in it is on disk. A path that exists is
	// an error (fs.ErrExist). A plan does not call fill, so it doesn't know the
	// directory's content.
	WriteTree(path string, fill func(dir string) error) error
	// WriteSet writes several large files, all or none: fill calls put once for
	// each, and none is in its place before fill has returned nil and all are on
	// disk. Content other than announced is an error. The caller leaves out files
	// that HasFile finds. A plan does not call fill.
	WriteSet(files []SetFile, fill func(put func(path string, content io.Reader) error) error) error
	// Rename moves a file or directory, durably, within one file system. It is
	// an error (fs.ErrExist) if the new path exists; but if the old path doesn't,
	// it has been moved already. Nothing at either
	// path is an error (fs.ErrNotExist), and so is a mount point.
	Rename(from, to string) (changed bool, err error)
	// EnsureDir makes path a directory with mode, and its parents with 0755. An
	// existing directory keeps its mode unless that is wider than mode; one with
	// the sticky bit, such as /tmp, is shared on purpose and always keeps it. A
	// symlink to a directory counts as that directory; anything else is an error.
	EnsureDir(path string, mode fs.FileMode) error
	// Remove deletes one file or empty directory. A missing one is not an error.
	Remove(path string) error
	// RemoveEmpty deletes a directory if it is empty. A directory that is not, a
	// mount point, a symlink and anything that is not a directory stay, without
	// an error.
	RemoveEmpty(path string) (removed bool, err error)
	// RemoveTree deletes a directory with everything in it. Below it no symlink
	// is followed and no mount point is crossed, even if other programs work there
	// meanwhile: a mount stays, with its content. A directory that Stays is only
	// emptied. A missing one is not an error, and anything else is a *KindError.
	// A failure does not keep it from removing the rest.
	RemoveTree(path string) (Removal, error)
	// Unmount removes a mount, with flags by their names in umount2(2), such as
	// MNT_FORCE; without flags at once, even if it is in use (MNT_DETACH). A path
	// that is not mounted is not an error.
	Unmount(path string, flags []string) error
}

// OwnerWriter gives files to users other than root, who may plant links and
// other names of root's files wherever they can write. So an owner is set by
// the descriptor of the file that was checked, never by a path and never through a
// link that somebody else has made.
type OwnerWriter interface {
	// WriteOwned is WriteFile for a file that belongs to owner from its first
	// byte on. A file that belongs to somebody else is replaced.
	WriteOwned(path string, data []byte, mode fs.FileMode, owner Owner) (changed bool, err error)
	// Give sets the owner and mode of an existing regular file; anything else at
	// path is a *KindError. A file with another name (a hard link) and another
	// owner is refused.
	Give(path string, owner Owner, mode fs.FileMode) error
	// GiveTree gives away a directory with everything in it, the directory last:
	// one that belongs to owner is complete, and is left alone. Anything that is
	// neither a directory nor a regular file, or is in another mount, keeps its
	// owner and is returned. A file that has another name is refused as by Give.
	// path itself may be a symlink that root has made.
	GiveTree(path string, owner Owner) (kept []string, err error)
	// LockAccounts takes the lock that useradd(8) and others hold while they
	// change /etc/passwd and /etc/group (lckpwdf(3)). It waits some seconds for
	// it.
	LockAccounts() (release func(), err error)
}

// UnitWriter gives orders to systemd. Each method returns when the job has
// ended. Errors are *UnitError or *BusError, or ErrNoSystemd.
type UnitWriter interface {
	ReloadUnits(ctx context.Context) error
	EnableUnit(ctx context.Context, name string) error
	StartUnit(ctx context.Context, name string) error
	StopUnit(ctx context.Context, name string) error
	RestartUnit(ctx context.Context, name string) error
	// DisableUnit undoes EnableUnit, MaskUnit keeps a unit from being started by
	// anything, and UnmaskUnit undoes that. A unit in that state is left alone.
	DisableUnit(ctx context.Context, name string) error
	MaskUnit(ctx context.Context, name string) error
	UnmaskUnit(ctx context.Context, name string) error
	// SuspendUnit stops the main process of a unit where it is (SIGSTOP). KillUnit
	// ends it, suspended or not, without a chance to do anything (SIGKILL). systemd
	// may start the unit again: StopUnit prevents that.
	SuspendUnit(ctx context.Context, name string) error
	KillUnit(ctx context.Context, name string) error
}

// RuntimeWriter gives orders to the container runtime, at a socket as in
// RuntimeReader.
type RuntimeWriter interface {
	// PullImage makes the runtime pull an image. Only ctx bounds it.
	PullImage(ctx context.Context, socket, image string) error
	// ImportImages gives containerd images out of an archive (a tar of an OCI
	// layout), and pins them. archive writes it. names are for the plan, which
	// does not call archive.
	ImportImages(ctx context.Context, socket string, names []string, archive func(w io.Writer) error) error
	// PinImage pins or unpins an image of containerd by its name.
	PinImage(ctx context.Context, socket, image string, pinned bool) error
	// RemoveImage removes an image by its name.
	RemoveImage(ctx context.Context, socket, image string) error
	// StopContainer asks a container to exit, and kills it after grace. The
	// kubelet restarts the containers of a static Pod.
	StopContainer(ctx context.Context, socket, id string, grace time.Duration) error
	// RemoveExited removes the exited containers of a name in Pods of a
	// namespace. The kubelet delays a restart (CrashLoopBackOff) by the
	// containers that it finds from before; if there are none, it does not.
	RemoveExited(ctx context.Context, socket, namespace, name string) error
	// RemovePods kills the processes of Pods, and removes them with their containers
	// and their network, many side by side: first those with their own network,
	// because the network plugin may need the others to remove it. A failure
	// does not stop it from removing the rest. A Pod that the runtime does not
	// know is not an error.
	RemovePods(ctx context.Context, socket string, pods []Pod) (removed []Pod, err error)
}

// ProcSys is where the kernel shows its parameters: net.ipv4.ip_forward is the
// file net/ipv4/ip_forward below it.
const ProcSys = "/proc/sys/"

// KernelWriter changes settings of the running kernel. None of it outlives a boot,
// but for the SELinux contexts of files.
type KernelWriter interface {
	// SetParameter sets a kernel parameter, named by its path below /proc/sys, and
	// reports whether it had another value.
	SetParameter(name, value string) (changed bool, err error)
	// LoadModule loads a kernel module and its dependencies.
	LoadModule(ctx context.Context, name string) error
	// SwapOff stops using an area as swap: a device or file, as Swap lists it.
	SwapOff(area string) error
	// SwapOn uses an area as swap again.
	SwapOn(area string) error
	// RestoreContexts sets the policy's SELinux contexts on paths and everything
	// below them.
	RestoreContexts(ctx context.Context, paths []string) error
}

// NetworkWriter changes the kernel's network configuration.
type NetworkWriter interface {
	// RemoveLeftover removes a leftover that NetworkLeftovers listed.
	RemoveLeftover(ctx context.Context, l Leftover) error
}

// DiskTester tests a directory's file system by writing to it. Nothing is left
// behind.
type DiskTester interface {
	// ProbeWrite goes through the steps of a write in an existing directory: it creates
	// a small file, syncs it, and renames it. Both names are those of a file that
	// is being written, which LeftoverOf recognizes.
	ProbeWrite(dir string) error
	// SyncTimes appends blocks to a file in an existing directory, as etcd does
	// to its log, each followed by fdatasync, and returns how long each took. It
	// ends with ctx, or after a hundred.
	SyncTimes(ctx context.Context, dir string) ([]time.Duration, error)
}
