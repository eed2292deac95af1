// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// stopAtChanges makes the kernel stop this process, and any program it executes, for its tracer at the calls in changes.
func stopAtChanges() error {
	const nr = 0 // the offset of the call's number in struct seccomp_data
	filter := []bpf.Instruction{bpf.LoadAbsolute{Off: nr, Size: 4}}
	for _, call := range slices.Sorted(maps.Keys(changes)) {
		filter = append(filter, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(call), SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_TRACE})
	}
	raw, err := bpf.Assemble(append(filter, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return err
	}
	code := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	// Without this, only root may set a filter.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("set a filter of calls: %w", errno)
	}
	return nil
}

// entry is struct ptrace_syscall_info of ptrace(2) before a call that the filter has selected.
type entry struct {
	op   uint8
	_    [3]uint8
	arch uint32
	_    [2]uint64 // instruction and stack pointer
	nr   uint64
	args [6]uint64
}

func syscallInfo(tid int) (entry, error) {
	const getSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO, of Linux 5.3
	var e entry
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(tid), unsafe.Sizeof(e), uintptr(unsafe.Pointer(&e)), 0, 0)
	if errno != 0 {
		return e, errno
	}
	return e, nil
}

// change holds the positions of a call's arguments: the descriptor, and the path, -1 for none.
type change struct {
	name     string
	fd, path int
}

// changes are the calls by which Go programs change files. fsync and syncfs change nothing, but their place among the others
// shows which changes are durable.
var changes = map[uint64]change{
	unix.SYS_OPENAT:    {"openat", 0, 1},
	unix.SYS_MKDIRAT:   {"mkdirat", 0, 1},
	unix.SYS_UNLINKAT:  {"unlinkat", 0, 1},
	unix.SYS_SYMLINKAT: {"symlinkat", 1, 2},
	unix.SYS_LINKAT:    {"linkat", 2, 3},
	unix.SYS_RENAMEAT:  {"renameat", 2, 3},
	unix.SYS_RENAMEAT2: {"renameat2", 2, 3},
	unix.SYS_FCHMODAT:  {"fchmodat", 0, 1},
	unix.SYS_FCHOWNAT:  {"fchownat", 0, 1},
	unix.SYS_FCHMOD:    {"fchmod", 0, -1},
	unix.SYS_FCHOWN:    {"fchown", 0, -1},
	unix.SYS_FTRUNCATE: {"ftruncate", 0, -1},
	unix.SYS_WRITE:     {"write", 0, -1},
	unix.SYS_PWRITE64:  {"pwrite64", 0, -1},
	unix.SYS_FSYNC:     {"fsync", 0, -1},
	unix.SYS_SYNCFS:    {"syncfs", 0, -1},
}

// describe returns a call's change, if it makes any.
func describe(tid int, e entry) (Step, bool) {
	c, known := changes[e.nr]
	if !known || c.name == "openat" && e.args[2]&(unix.O_CREAT|unix.O_TRUNC) == 0 {
		return Step{}, false
	}
	step := Step{Call: c.name, FD: -1}
	if c.path < 0 {
		step.FD = int(int32(e.args[c.fd]))
		step.Path = linkOf(tid, fmt.Sprintf("fd/%d", step.FD))
		return step, true
	}
	step.Path = text(tid, e.args[c.path])
	switch dir := int32(e.args[c.fd]); {
	case filepath.IsAbs(step.Path):
		step.Path = filepath.Join(linkOf(tid, "root"), step.Path)
	case dir == unix.AT_FDCWD:
		step.Path = filepath.Join(linkOf(tid, "cwd"), step.Path)
	default:
		step.Path = filepath.Join(linkOf(tid, fmt.Sprintf("fd/%d", dir)), step.Path)
	}
	return step, true
}

// linkOf resolves a link in /proc; it returns "" for a deleted file.
func linkOf(tid int, name string) string {
	target, err := os.Readlink(fmt.Sprintf("/proc/%d/%s", tid, name))
	if err != nil || strings.HasSuffix(target, " (deleted)") {
		return ""
	}
	return target
}

// text reads a string from the program's memory.
func text(tid int, address uint64) string {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", tid))
	if err != nil {
		return ""
	}
	defer mem.Close()
	buf := make([]byte, unix.PathMax)
	n, _ := mem.ReadAt(buf, int64(address)) // less where the mapping ends
	path, _, _ := bytes.Cut(buf[:n], []byte{0})
	return string(path)
}
