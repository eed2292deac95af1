// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// killAfter is how long a program may take to end after its CancelSignal.
const killAfter = time.Minute

const (
	nodePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	notFound = 127 // a shell's exit code if there's no such program
)

// Cmd is a program to run in a node, as root in a clean environment.
type Cmd struct {
	Args   []string
	Env    []string // in addition to PATH, HOME, LANG and TERM
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer

	// CancelSignal is sent to the program and its children when the context ends; default SIGKILL. If the program doesn't end then,
	// it's killed, and so are children that outlive it. If CancelSignal is set and the program ends by itself, Exec reports its exit
	// code.
	CancelSignal syscall.Signal
	// Interactive leaves the program in this program's process group, so that it can use the terminal.
	Interactive bool
}

// ExitError reports a program in a node that didn't end with 0.
type ExitError struct {
	Node   string
	Args   []string
	Code   int    // -1 if a signal ended it
	Stderr string // its end, if Output or Combined captured it
}

func (e *ExitError) Error() string {
	message := fmt.Sprintf("%s: %s: exit code %d", e.Node, strings.Join(e.Args, " "), e.Code)
	if e.Stderr != "" {
		message += ": " + e.Stderr
	}
	return message
}

// Exec runs a program in the node's namespaces and cgroups and waits for it. If its exit code isn't 0, the error's cause is an
// *ExitError.
func (n *Node) Exec(ctx context.Context, c Cmd) error {
	leader, err := n.leader()
	if err != nil {
		return err
	}
	cgroups, err := cgroupsOf(leader)
	if err != nil {
		return err
	}
	var cmd *exec.Cmd
	err = thread.Do(func() error {
		attributes := &syscall.SysProcAttr{Setpgid: !c.Interactive}
		done, err := joinCgroups(cgroups, attributes)
		defer done()
		if err != nil {
			return err
		}
		if err := thread.EnterProcess(leader); err != nil {
			return err
		}
		if cmd, err = c.command(ctx); err != nil {
			return &ExitError{Node: n.state.Name, Args: c.Args, Code: notFound, Stderr: err.Error()}
		}
		cmd.SysProcAttr = attributes
		return errors.Wrap(cmd.Start(), "cannot start a program")
	})
	if err != nil {
		return err
	}
	return n.wait(ctx, c, cmd)
}

// command prepares the program; the calling thread must be inside the node.
func (c Cmd) command(ctx context.Context) (*exec.Cmd, error) {
	path, err := lookPath(c.Args[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, path, c.Args[1:]...)
	cmd.Args[0] = c.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + nodePath, "HOME=/root", "LANG=C.UTF-8", "TERM=" + os.Getenv("TERM")}, c.Env...)
	cmd.WaitDelay = killAfter
	cmd.Cancel = func() error { return c.signal(cmd.Process.Pid, c.CancelSignal) }
	return cmd, nil
}

// lookPath finds a program as a shell in the node would.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(nodePath) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no such program in the node")
}

func (n *Node) wait(ctx context.Context, c Cmd, cmd *exec.Cmd) error {
	err := cmd.Wait()
	if ctx.Err() == nil {
		return n.result(c, cmd.ProcessState.ExitCode(), err)
	}
	_ = c.signal(cmd.Process.Pid, syscall.SIGKILL) // its orphans
	if code := cmd.ProcessState.ExitCode(); c.CancelSignal != 0 && code >= 0 {
		return n.result(c, code, nil)
	}
	return n.result(c, 0, ctx.Err())
}

// signal sends a signal to the program with its children; SIGKILL if it is 0.
func (c Cmd) signal(pid int, s syscall.Signal) error {
	if s == 0 {
		s = syscall.SIGKILL
	}
	if c.Interactive {
		return syscall.Kill(pid, s)
	}
	return syscall.Kill(-pid, s) // the process group, which also reaches inside the node
}

// result turns the program's exit code and error into this package's errors.
func (n *Node) result(c Cmd, code int, err error) error {
	var exit *exec.ExitError
	if code != 0 && (err == nil || errors.As(err, &exit)) {
		return &ExitError{Node: n.state.Name, Args: c.Args, Code: code}
	}
	return errors.Wrapf(err, "%s: %s", n.state.Name, strings.Join(c.Args, " "))
}

// Output runs a program in the node and returns its standard output.
func (n *Node) Output(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := n.Exec(ctx, Cmd{Args: args, Stdout: &stdout, Stderr: &stderr})
	return stdout.String(), withStderr(err, stderr.String())
}

// Combined runs a program in the node and returns all its output.
func (n *Node) Combined(ctx context.Context, args ...string) (string, error) {
	var out bytes.Buffer
	err := n.Exec(ctx, Cmd{Args: args, Stdout: &out, Stderr: &out})
	return out.String(), withStderr(err, out.String())
}

func withStderr(err error, text string) error {
	var exit *ExitError
	if errors.As(err, &exit) {
		const most = 4000
		text = strings.TrimSpace(text)
		exit.Stderr = text[max(len(text)-most, 0):]
	}
	return err
}

// cgroupsOf returns the directories of a process's cgroups.
func cgroupsOf(pid int) ([]string, error) {
	own, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return nil, errors.Wrap(err, "cannot read a process's cgroups")
	}
	mountinfo, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, errors.Wrap(err, "cannot read this machine's mounts")
	}
	var dirs []string
	for _, h := range hierarchies(string(own), string(mountinfo)) {
		dirs = append(dirs, filepath.Join(h.mount, h.own))
	}
	return dirs, nil
}

// Logs returns the entries of a unit in systemd's journal, or all entries if unit is empty. It works on a stopped node too.
func (n *Node) Logs(ctx context.Context, unit string, more ...string) (string, error) {
	args := append([]string{"journalctl", "--no-pager", "--quiet", "--output=short-precise"}, more...)
	if unit != "" {
		args = append(args, "--unit="+unit)
	}
	if n.Running() {
		return n.Output(ctx, args...)
	}
	args = append(args, "--directory="+filepath.Join(n.upper(), "var/log/journal"))
	out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	return string(out), errors.Wrapf(err, "cannot read the logs of %s: %s", n.state.Name, out)
}
