// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	points := below(mountPoints(string(data)), real)
	for i, p := range points {
		points[i] = filepath.Clean(dir) + strings.TrimPrefix(p, real)
	}
	slices.Reverse(points) // a mount on top of another comes later in the table
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

func mountPoints(table string) []string {
	const mountPoint = 4 // the field, counted from 0
	var points []string
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		if len(fields) > mountPoint {
			points = append(points, unescape(fields[mountPoint]))
		}
	}
	return points
}

// below lists the paths inside a directory.
func below(paths []string, dir string) []string {
	var found []string
	for _, p := range paths {
		if strings.HasPrefix(p, dir+"/") {
			found = append(found, p)
		}
	}
	return found
}

// unescape decodes the octal escapes of spaces and backslashes.
func unescape(text string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, `\`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		const digits = 3
		if len(after) < digits {
			b.WriteString(`\` + after)
			return b.String()
		}
		code, err := strconv.ParseUint(after[:digits], 8, 8)
		if err != nil {
			b.WriteString(`\` + after[:digits])
		} else {
			b.WriteByte(byte(code))
		}
		text = after[digits:]
	}
}

// Unmount never follows a symlink at the end of path.
func (r *Root) Unmount(path string, flags []string) error {
	number := unix.UMOUNT_NOFOLLOW
	for _, name := range flags {
		number |= unmountFlag(name)
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

func unmountFlag(name string) int {
	switch name {
	case "MNT_FORCE":
		return unix.MNT_FORCE
	case "MNT_DETACH":
		return unix.MNT_DETACH
	case "MNT_EXPIRE":
		return unix.MNT_EXPIRE
	}
	return 0
}

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
