// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package background keeps long computations, such as generating private keys, out of the way of everything else. No other
// package changes the settings of the process or of a thread. Do runs one computation at a low priority; Reserve keeps a
// processor free beside several.
package background

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// nice is the niceness of background work. Such work gets about a tenth of a processor that others want too: sched(7).
const nice = 10

// Do runs work on its own thread, with a low priority, and returns when it's done. If the system doesn't allow a lower priority,
// the work runs with the current one.
func Do(work func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if now, err := niceness(); err == nil && now < nice {
			_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice)
		}
		work()
	}()
	<-done
}

// Reserve lets n computations run side by side in the background and still leaves a processor slot to the other goroutines:
// without it, a goroutine that talks to systemd or the kubelet waits up to 10 ms for each turn. restore puts the setting back.
func Reserve(n int) (restore func()) {
	before := runtime.GOMAXPROCS(n + 1)
	return func() { runtime.GOMAXPROCS(before) }
}

// niceness returns this thread's niceness, from -20 to 19.
func niceness() (int, error) {
	raw, err := unix.Getpriority(unix.PRIO_PROCESS, unix.Gettid())
	return 20 - raw, err // the kernel counts from 40 to 1
}
