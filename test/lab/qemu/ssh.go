// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// Cmd is a program to run in a machine, as root. Its CancelSignal doesn't reach the machine.
type Cmd = nodes.Cmd

// connection is one SSH connection for all commands: a handshake takes seconds in an emulated machine.
type connection struct {
	dir    string
	args   []string
	master *exec.Cmd
	ended  chan struct{}
}

const (
	sshFailed = 255 // ssh's own exit code
	nodePath  = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// connect waits until the machine lets root in. alive returns an error once there's nothing to wait for.
func connect(ctx context.Context, port int, key string, alive func() error) (*connection, error) {
	dir, err := os.MkdirTemp("", "vm-ssh-") // a socket's path has to be short
	if err != nil {
		return nil, errors.Wrap(err, "cannot make a directory for SSH")
	}
	c := &connection{dir: dir, args: []string{
		"-F", "none", "-i", key, "-p", fmt.Sprint(port), "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no",
		"-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes", "-o", "ConnectTimeout=120",
		"-o", "ServerAliveInterval=60", "-o", "ServerAliveCountMax=20", "-o", "ControlPath=" + filepath.Join(dir, "socket"),
	}}
	for {
		if err := c.open(ctx); err == nil {
			return c, nil
		}
		if err := alive(); err != nil {
			c.close()
			return nil, err
		}
		select {
		case <-ctx.Done():
			c.close()
			return nil, errors.Wrap(ctx.Err(), "it doesn't let root in")
		case <-time.After(pollPeriod):
		}
	}
}

// open starts ssh in the background, and waits until it has connected or ended.
func (c *connection) open(ctx context.Context) error {
	c.master = exec.Command("ssh", append(c.args, "-M", "-N", "root@127.0.0.1")...)
	c.master.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.master.Start(); err != nil {
		return errors.Wrap(err, "cannot start ssh")
	}
	c.ended = make(chan struct{})
	go func(master *exec.Cmd, ended chan<- struct{}) {
		_ = master.Wait()
		close(ended)
	}(c.master, c.ended)
	for {
		if _, err := os.Stat(filepath.Join(c.dir, "socket")); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.ended:
			return errors.New("ssh didn't connect")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *connection) close() {
	if c.master != nil && c.master.Process != nil {
		_ = c.master.Process.Kill() // it may have ended
		<-c.ended
	}
	_ = os.RemoveAll(c.dir) // of no use to anyone
}

// run runs a program; the machine's shell gets each argument quoted.
func (c *connection) run(ctx context.Context, cmd Cmd) error {
	words := append([]string{"env", "PATH=" + nodePath, "LANG=C.UTF-8"}, cmd.Env...)
	for _, arg := range cmd.Args {
		words = append(words, "'"+strings.ReplaceAll(arg, "'", `'\''`)+"'")
	}
	ssh := exec.CommandContext(ctx, "ssh", append(c.args, "-o", "ControlMaster=no", "root@127.0.0.1", strings.Join(words, " "))...)
	ssh.Stdin, ssh.Stdout, ssh.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	ssh.WaitDelay = 10 * time.Second
	return ssh.Run()
}

// Exec runs a program in the machine and waits for it. If its exit code isn't 0, the error is a *nodes.ExitError.
func (m *Machine) Exec(ctx context.Context, c Cmd) error {
	if m.ssh == nil {
		return errors.Errorf("%s is off", m.Name)
	}
	err := m.ssh.run(ctx, c)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 && exit.ExitCode() != sshFailed {
		return &nodes.ExitError{Node: m.Name, Args: c.Args, Code: exit.ExitCode()}
	}
	return errors.Wrapf(err, "%s: %s", m.Name, strings.Join(c.Args, " "))
}

// WriteFile writes a file in the machine.
func (m *Machine) WriteFile(ctx context.Context, path string, content []byte) error {
	return m.Exec(ctx, Cmd{Args: []string{"tee", path}, Stdin: bytes.NewReader(content), Stdout: io.Discard})
}
