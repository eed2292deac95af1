// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// background is the niceness of work that can wait. If all processors are busy, it
// gets about a tenth of what others get: see sched(7).
const background = 10

// InBackground does work on its own thread, which yields the processors to other
// work in this process and in others. If the system does not allow that, the work
// has normal priority.
func InBackground(work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if now, err := niceness(); err == nil && now < background {
			_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), background)
		}
		work()
	}()
	<-done
}

// niceness is the niceness of this thread, from -20 to 19.
func niceness() (int, error) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	return 20 - raw, err // the kernel counts from 40 to 1
}
