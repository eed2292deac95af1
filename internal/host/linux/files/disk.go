// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"context"
	stderrors "errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/host"
)

// mountTable lists this process's mounts: proc_pid_mountinfo(5).
const mountTable = "/proc/self/mountinfo"

func (r *Root) Mounts(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(r.path(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		real, err = r.path(dir), nil
	}
	if err != nil {
		return nil, errors.Wrapf(err, "list the mounts below %s", dir)
	}
	data, err := r.ReadFile(mountTable)
	if err != nil {
		return nil, errors.Wrap(err, "list the mounts")
	}
	real = r.hostPath(real)
	var points []string
	for line := range strings.Lines(string(data)) {
		const mountPoint = 4 // the field, counted from 0
		if fields := strings.Fields(line); len(fields) > mountPoint {
			if below, found := strings.CutPrefix(Unescape(fields[mountPoint]), real+"/"); found {
				points = append(points, filepath.Join(dir, below))
			}
		}
	}
	slices.Reverse(points) // a mount on top of another comes later in the table
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

// Unescape decodes the characters that the kernel escapes in paths of /proc/self/mountinfo and /proc/swaps:
// proc_pid_mountinfo(5).
func Unescape(path string) string { return escaped.Replace(path) }

var escaped = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Unmount never follows a symlink at the end of path.
func (r *Root) Unmount(path string, flags []string) error {
	number := unix.UMOUNT_NOFOLLOW
	for _, name := range flags {
		number |= unmountFlags[name]
	}
	if len(flags) == 0 {
		number |= unix.MNT_DETACH
	}
	path = r.path(path)
	err := unix.Unmount(path, number)
	if err == unix.EAGAIN { // MNT_EXPIRE marks first, and unmounts if it stays unused
		err = unix.Unmount(path, number)
	}
	if err == unix.EINVAL && len(flags) == 0 || err == unix.ENOENT {
		return nil
	}
	return host.Explain("unmount", path, err)
}

var unmountFlags = map[string]int{"MNT_FORCE": unix.MNT_FORCE, "MNT_DETACH": unix.MNT_DETACH, "MNT_EXPIRE": unix.MNT_EXPIRE}

// mountedOn reports whether dir, in this mount, is its mount point.
func mountedOn(dir, mount string) (bool, error) {
	parent, err := openDir(filepath.Dir(dir))
	if err != nil {
		return false, err
	}
	defer parent.Close()
	above, err := mountID(parent)
	return above != mount, err
}

// mountID is the kernel's number for f's mount, from proc(5). It differs between bind mounts of one file system, on every kernel.
func mountID(f *os.File) (string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", f.Fd()))
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.Errorf("cannot find the mount that %s is in without /proc: mount it (`mount -t proc proc /proc`, below the directory of --rootfs if that is given)", f.Name())
	}
	if err != nil {
		return "", err
	}
	for line := range bytes.Lines(data) {
		if id, found := bytes.CutPrefix(line, []byte("mnt_id:")); found {
			return string(bytes.TrimSpace(id)), nil
		}
	}
	return "", errors.New("the kernel does not report the mount of a directory (/proc/self/fdinfo has no mnt_id)")
}

const (
	// syncBlock and syncBlocks: etcd's documentation measures a disk by fdatasync after each of many writes of 2300 bytes, about
	// an entry of its log: https://etcd.io/docs/v3.5/op-guide/hardware/#disks. The 99th percentile needs a hundred.
	syncBlock  = 2300
	syncBlocks = 100
)

// probeName is the file that a probe pretends to write.
const probeName = "probe"

// ProbeWrite also removes a killed probe's leftovers, and restores the directory's modification time.
func (r *Root) ProbeWrite(dir string) error {
	dir = r.path(dir)
	before, err := dirInfo(dir)
	if err == nil {
		err = probeWrite(dir)
		_ = os.Chtimes(dir, time.Time{}, before.ModTime())
	}
	return host.Explain("write to", dir, err)
}

func probeWrite(path string) error {
	dir, err := openDir(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := sweep(dir, probeName); err != nil {
		return err
	}
	fd := int(dir.Fd())
	temp, err := writeTemp(dir, probeName, newFile{mode: 0o600, fill: func(w io.Writer) error { _, err := io.WriteString(w, "probe\n"); return err }})
	if err != nil {
		return err
	}
	moved := host.TempName(probeName)
	if err = unix.Renameat(fd, temp, fd, moved); err == nil {
		temp = moved
	}
	err = stderrors.Join(err, unix.Unlinkat(fd, temp, 0), dir.Sync())
	if errors.Is(err, unix.ENOENT) {
		return nil // another process's probe removed it as a leftover, so writing works
	}
	return err
}

// SyncTimes writes to a file without a name, so nothing is left even if this process is killed.
func (r *Root) SyncTimes(ctx context.Context, dir string) (took []time.Duration, err error) {
	dir = r.path(dir)
	f, err := openUnnamed(dir)
	if err != nil {
		return nil, host.Explain("measure the disk of", dir, err)
	}
	defer f.Close()
	// As etcd does. If the file system can't, the writes allocate the space.
	_ = unix.Fallocate(int(f.Fd()), 0, 0, syncBlock*syncBlocks)
	block := []byte(strings.Repeat("x", syncBlock))
	for len(took) < syncBlocks && (ctx.Err() == nil || len(took) == 0) {
		start := time.Now()
		if _, err = f.Write(block); err == nil {
			err = unix.Fdatasync(int(f.Fd()))
		}
		if err != nil {
			return nil, host.Explain("measure the disk of", dir, err)
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// openUnnamed makes a file that disappears when it's closed. On a file system without such files, it has a name for a moment.
func openUnnamed(dir string) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err == nil {
		return os.NewFile(uintptr(fd), dir), nil
	}
	if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EINVAL) {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	before, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, host.TempName(probeName)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	_ = os.Chtimes(dir, time.Time{}, before.ModTime())
	if err != nil {
		return nil, stderrors.Join(err, f.Close())
	}
	return f, nil
}

func (r *Root) Space(path string) (host.Space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(r.path(path), &s); err != nil {
		return host.Space{}, host.Explain("look at the file system of", path, err)
	}
	var at unix.Stat_t
	if err := unix.Stat(r.path(path), &at); err != nil {
		return host.Space{}, host.Explain("look at", path, err)
	}
	block := uint64(s.Frsize)
	if s.Type == unix.BTRFS_SUPER_MAGIC { // subvolumes share the space, and this half of the file system's ID, but no device number
		at.Dev = uint64(uint32(s.Fsid.Val[0]))
	}
	return host.Space{Free: s.Bavail * block, Total: s.Blocks * block, FreeInodes: s.Ffree, TotalInodes: s.Files, Device: at.Dev}, nil
}
