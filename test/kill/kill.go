// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package kill runs a program and kills it right before any one of the system calls by which it changes files, as a debugger sees
// them, or makes that call fail. So a test can try every instant at which a run may be cut off.
package kill

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run is one run of a program.
type Run struct {
	// Below are the directories whose changes count. They must be real paths.
	Below []string
	// Count, if set, reports whether a change counts.
	Count func(Step) bool
	// Fail, if set, is the error of change number At, instead of the SIGKILL. Then fsync and syncfs count too.
	Fail syscall.Errno
	// At is the number, from 1, of the change right before which the program is killed with SIGKILL; 0 lets it run to its end.
	At int

	// Steps are the changes begun, up to the one before which the program was killed, and the calls of fsync and syncfs among
	// them. Calls of several threads may mix differently each time.
	Steps []Step
	// Changes is the number of steps that count as changes. fsync and syncfs don't: they make no difference to a later process.
	Changes int
	// Status is the program's exit status.
	Status syscall.WaitStatus

	leader  int
	settled bool // the options are set
}

// Step is one system call that changes a file.
type Step struct {
	Call string
	Path string
	// FD is the descriptor of calls that work on one, else -1.
	FD int
}

func (s Step) String() string { return s.Call + " " + s.Path }

// options let the tracer see the calls that the filter selects, follow new threads and children, and take them along if it ends.
const options = unix.PTRACE_O_TRACESECCOMP | unix.PTRACE_O_TRACECLONE | unix.PTRACE_O_TRACEFORK |
	unix.PTRACE_O_TRACEVFORK | unix.PTRACE_O_EXITKILL

// ErrNotAllowed means that this machine doesn't allow tracing.
var ErrNotAllowed = errors.New("tracing is not allowed here")

// programEnv names the program that this binary becomes; see Play.
const programEnv = "SLIPWAY_KILL_PROGRAM"

// played reports whether this process has called Play.
var played bool

// Play belongs at the start of TestMain. Do starts a copy of the test's binary, and Play turns the copy into Do's program: it
// makes the kernel stop that program at calls that change files, and no others, as each stop takes time. It returns in the
// test itself, and in a program that is this binary.
func Play() {
	played = true
	program := os.Getenv(programEnv)
	if program == "" {
		return
	}
	err := errors.Join(os.Unsetenv(programEnv), stopAtChanges())
	if err == nil && program != self {
		err = syscall.Exec(program, os.Args, os.Environ()) //nolint:gosec // the test says what to run
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "kill: start %s: %v\n", program, err)
		os.Exit(1)
	}
}

const self = "/proc/self/exe"

// Do runs cmd to its end. Its streams work as with exec. TestMain must have called Play.
func (r *Run) Do(cmd *exec.Cmd) error {
	if !played {
		return errors.New("TestMain does not call kill.Play")
	}
	// Only the thread that has begun a trace may continue it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.Env = append(cmd.Environ(), programEnv+"="+cmd.Path)
	cmd.Path = self
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Ptrace = true
	cmd.SysProcAttr.Setpgid = true // the group identifies its threads and children
	if err := cmd.Start(); err != nil {
		if errors.Is(err, unix.EPERM) {
			return ErrNotAllowed
		}
		return fmt.Errorf("start the program: %w", err)
	}
	r.leader, r.settled = cmd.Process.Pid, false
	err := r.follow()
	_ = cmd.Wait() // for its streams: the process itself is gone
	return err
}

// follow goes from stop to stop until all of the program's processes are gone.
func (r *Run) follow() error {
	for {
		var status syscall.WaitStatus
		tid, err := syscall.Wait4(-r.leader, &status, unix.WALL, nil)
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.ECHILD:
			return nil
		case err != nil:
			return fmt.Errorf("wait for the program: %w", err)
		case status.Stopped():
			r.stopped(tid, status)
		case tid == r.leader:
			r.Status = status
		}
	}
}

// stopped handles a stopped thread and resumes it, unless it's dead by then.
func (r *Run) stopped(tid int, status syscall.WaitStatus) {
	pass := 0
	switch signal := status.StopSignal(); {
	case !r.settled:
		r.settled = unix.PtraceSetOptions(tid, options) == nil
	case status.TrapCause() == unix.PTRACE_EVENT_SECCOMP:
		r.call(tid)
	case signal != unix.SIGTRAP && signal != unix.SIGSTOP: // those are the trace's own
		pass = int(signal)
	}
	_ = unix.PtraceCont(tid, pass)
}

// call counts the change a thread is about to make, and kills the program before change number At.
func (r *Run) call(tid int) {
	info, err := syscallInfo(tid)
	if err != nil {
		return // it is being killed
	}
	step, changes := describe(tid, info)
	if !changes || !r.counts(step.Path) {
		return
	}
	r.Steps = append(r.Steps, step)
	if r.Fail == 0 && (step.Call == "fsync" || step.Call == "syncfs") || r.Count != nil && !r.Count(step) {
		return
	}
	r.Changes++
	switch {
	case r.Changes != r.At:
	case r.Fail != 0:
		fail(tid, r.Fail)
	default:
		_ = unix.Kill(r.leader, unix.SIGKILL)
	}
}

func (r *Run) counts(path string) bool {
	for _, dir := range r.Below {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}
