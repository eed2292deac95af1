// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/pkg/errors"
)

// exitEvent is PTRACE_EVENT_EXIT, as it appears in a wait's status.
const exitEvent = 6

// peakMemory runs a program and returns its peak memory in MiB. It reads the peak right before the program ends: wait4's figure
// includes the memory of this program, from which the other is forked.
func peakMemory(name string, args ...string) (float64, error) {
	runtime.LockOSThread() // one thread must do all the tracing
	defer runtime.UnlockOSThread()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	pid, peak := cmd.Process.Pid, 0.0
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil { // it has just become the program
		return 0, err
	}
	if err := syscall.PtraceSetOptions(pid, syscall.PTRACE_O_TRACEEXIT); err != nil {
		return 0, err
	}
	for signal := 0; ; {
		// ESRCH: another thread has ended the program meanwhile, as the next status will show.
		if err := syscall.PtraceCont(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, err
		}
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
			return 0, err
		}
		switch {
		case status.Exited() && status.ExitStatus() == 0 && peak > 0:
			return peak, nil
		case !status.Stopped():
			return 0, errors.Errorf("%s ended unexpectedly: status %#x", name, uint32(status))
		case status.TrapCause() == exitEvent:
			peak, signal = highWater(pid), 0
		default:
			signal = int(status.StopSignal())
		}
	}
}

func highWater(pid int) float64 {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(data)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	return 0
}
