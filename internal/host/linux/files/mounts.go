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
	var points []string
	for line := range strings.Lines(string(data)) {
		const mountPoint = 4 // the field, counted from 0
		if fields := strings.Fields(line); len(fields) > mountPoint {
			if below, found := strings.CutPrefix(escaped.Replace(fields[mountPoint]), real+"/"); found {
				points = append(points, filepath.Join(dir, below))
			}
		}
	}
	slices.Reverse(points) // a mount on top of another comes later in the table
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

// escaped decodes the characters that proc_pid_mountinfo(5) escapes.
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
