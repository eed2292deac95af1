// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// A hierarchy is one cgroup tree of this machine.
type hierarchy struct {
	controllers string // as in /proc/self/cgroup, empty for version 2
	mount       string
	own         string // this process's cgroup, as a path below mount
}

// hierarchies reads the mounted cgroup trees and this process's place in them.
func hierarchies(selfCgroup, mountinfo string) []hierarchy {
	mounts := cgroupMounts(mountinfo)
	var found []hierarchy
	for _, line := range strings.Split(strings.TrimSpace(selfCgroup), "\n") {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 {
			continue
		}
		if mount, ok := mounts[fields[1]]; ok {
			found = append(found, hierarchy{controllers: fields[1], mount: mount, own: fields[2]})
		}
	}
	return found
}

// cgroupMounts maps controllers to mount points; version 2 has the empty name.
func cgroupMounts(mountinfo string) map[string]string {
	mounts := map[string]string{}
	for _, line := range strings.Split(mountinfo, "\n") {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			mounts[""] = left[4]
		case "cgroup":
			// The options are flags such as rw and the controllers, a name among them.
			options := strings.Split(right[2], ",")
			options = slices.DeleteFunc(options, func(o string) bool {
				return o == "rw" || o == "ro" || o == "xattr" || strings.HasPrefix(o, "release_agent=")
			})
			mounts[strings.Join(options, ",")] = left[4]
		}
	}
	return mounts
}

// machineHierarchies returns this machine's hierarchies.
func machineHierarchies() ([]hierarchy, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, errors.Wrap(err, "cannot read this process's cgroups")
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, errors.Wrap(err, "cannot read this machine's mounts")
	}
	found := hierarchies(string(self), string(mountinfo))
	if len(found) == 0 {
		return nil, errors.New("no cgroup is mounted on this machine, so no node can run here")
	}
	return found, nil
}

// cgroupDirs returns the directories of a lab's cgroup called name, one per hierarchy. They lie below this process's own cgroup,
// so a limit there limits the lab too. On a machine with only version 2 they can't: there, a cgroup with processes can't hand
// controllers down.
func cgroupDirs(all []hierarchy, name string) []string {
	var dirs []string
	for _, h := range all {
		own := h.own
		if len(all) == 1 && h.controllers == "" {
			own = "/"
		}
		dirs = append(dirs, filepath.Join(h.mount, own, name))
	}
	return dirs
}

// makeCgroup makes one cgroup directory and its parents. Several nodes may make the same one at the same time.
func makeCgroup(dir string) error {
	if filled(dir) {
		return nil
	}
	parent := filepath.Dir(dir)
	if err := makeCgroup(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		return errors.Wrap(err, "cannot make a cgroup")
	}
	// A new cpuset is empty, and no process can join an empty one.
	for _, file := range cpusets {
		value, err := os.ReadFile(filepath.Join(parent, file))
		if err != nil {
			continue // another controller's hierarchy
		}
		if err := os.WriteFile(filepath.Join(dir, file), value, 0); err != nil {
			return errors.Wrap(err, "cannot fill a cpuset")
		}
	}
	return delegate(parent)
}

var cpusets = []string{"cpuset.cpus", "cpuset.mems"}

// filled reports whether a cgroup exists and takes processes. In version 2, an empty cpuset means the parent's.
func filled(dir string) bool {
	if _, err := os.Stat(dir); err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.controllers")); err == nil {
		return true
	}
	return !slices.ContainsFunc(cpusets, func(file string) bool {
		value, err := os.ReadFile(filepath.Join(dir, file))
		return err == nil && strings.TrimSpace(string(value)) == ""
	})
}

// delegate hands all controllers of a version 2 cgroup down to its children.
func delegate(dir string) error {
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers")) // missing in version 1
	controllers := strings.Fields(string(data))
	if len(controllers) == 0 {
		return nil
	}
	wanted := "+" + strings.Join(controllers, " +")
	err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte(wanted), 0)
	return errors.Wrap(err, "cannot hand cgroup controllers down")
}

// members lists the processes in and below a cgroup, lowest id first.
func members(dir string) []int {
	var pids []int
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() { // cgroups come and go meanwhile
			pids = append(pids, processes(path)...)
		}
		return nil
	})
	slices.Sort(pids)
	return pids
}

// processes lists the processes in one cgroup, except for this one.
func processes(dir string) []int {
	var pids []int
	data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // none if it's gone
	for _, field := range strings.Fields(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// killCgroups ends every process in the cgroups. The lowest ids are the oldest, the node's init among them, and when that ends,
// the kernel ends all its processes.
func killCgroups(dirs []string, deadline time.Duration) error {
	for end := time.Now().Add(deadline); ; time.Sleep(10 * time.Millisecond) {
		left := 0
		for _, dir := range dirs {
			for _, pid := range members(dir) {
				left++
				killMember(pid, dir)
			}
		}
		if left == 0 {
			return nil
		}
		if time.Now().After(end) {
			return errors.Errorf("%d processes of %s are still there after %s", left, filepath.Base(dirs[0]), deadline)
		}
	}
}

// killMember ends a process, unless another process has its id by now.
func killMember(pid int, dir string) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if slices.Contains(members(dir), pid) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// removeCgroups removes empty cgroups and everything below them.
func removeCgroups(dirs []string) error {
	for _, dir := range dirs {
		var all []string
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				all = append(all, path)
			}
			return nil
		})
		for _, path := range slices.Backward(all) {
			if err := removeCgroup(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// removeCgroup removes one cgroup. It waits a little, as a process that has just ended may still be counted.
func removeCgroup(path string) error {
	var err error
	for range 100 {
		if err = unix.Rmdir(path); err == nil || err == unix.ENOENT {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return errors.Wrapf(err, "cannot remove the cgroup %s", path)
}
