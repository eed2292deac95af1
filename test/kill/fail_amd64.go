// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// CanFail reports whether Fail works on this kind of machine.
const CanFail = true

// dropCall turns the call that a thread is about to make into none.
func dropCall(tid int) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) == nil {
		regs.Orig_rax = ^uint64(0)
		_ = unix.PtraceSetRegs(tid, &regs)
	}
}

// setResult makes a call that has just returned return an error.
func setResult(tid int, errno syscall.Errno) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) == nil {
		regs.Rax = uint64(-int64(errno))
		_ = unix.PtraceSetRegs(tid, &regs)
	}
}
