// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package kill

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// CanFail reports whether Fail works on this kind of machine.
const CanFail = true

// fail makes a thread's next call return an error and do nothing.
func fail(tid int, errno syscall.Errno) {
	var regs unix.PtraceRegs
	if unix.PtraceGetRegs(tid, &regs) == nil {
		regs.Orig_rax, regs.Rax = ^uint64(0), uint64(-int64(errno))
		_ = unix.PtraceSetRegs(tid, &regs)
	}
}
