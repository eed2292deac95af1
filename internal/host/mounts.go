// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// mountTable is this process's view of what is mounted, in the format of
// proc_pid_mountinfo(5).
const mountTable = "/proc/self/mountinfo"

// Mounts implements PathReader.
func (r *Real) Mounts(folder string) ([]string, error) {
	real, err := filepath.EvalSymlinks(r.path(folder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		real, err = r.path(folder), nil
	}
	if err != nil {
		return nil, errors.Wrapf(err, "list what is mounted below %s", folder)
	}
	data, err := r.ReadFile(mountTable)
	if err != nil {
		return nil, errors.Wrap(err, "list what is mounted")
	}
	real = r.hostPath(real)
	points := below(mountPoints(string(data)), real)
	for i, p := range points {
		points[i] = filepath.Clean(folder) + strings.TrimPrefix(p, real)
	}
	slices.Reverse(points) // what is on top of another comes later in the table
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

// below lists those of paths that are in a folder.
func below(paths []string, folder string) []string {
	var found []string
	for _, p := range paths {
		if strings.HasPrefix(p, folder+"/") {
			found = append(found, p)
		}
	}
	return found
}

// unescape reads the octal numbers that stand for blanks and backslashes.
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

// Unmount implements FileWriter. It never follows a symlink at the end of path.
func (r *Real) Unmount(path string, flags []string) error {
	number := unix.UMOUNT_NOFOLLOW
	for _, name := range flags {
		number |= unmountFlag(name)
	}
	if len(flags) == 0 {
		number |= unix.MNT_DETACH
	}
	path = r.path(path)
	err := unix.Unmount(path, number)
	if err == unix.EAGAIN { // MNT_EXPIRE marks first, and unmounts what stays unused
		err = unix.Unmount(path, number)
	}
	if err == unix.EINVAL && len(flags) == 0 || err == unix.ENOENT {
		return nil
	}
	return explain("unmount", path, err)
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
