// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/cmd/slipway/cli"
	"github.com/slipway-k8s/slipway/test/fact"
)

// fullDisk refuses the first write; then there's room again.
type fullDisk struct {
	bytes.Buffer
	writes int
}

func (d *fullDisk) Write(p []byte) (int, error) {
	if d.writes++; d.writes == 1 {
		return 0, errors.New("no space left on device")
	}
	return d.Buffer.Write(p)
}

// TestNothingFollowsWhatIsLost: a run's last event, say, isn't there if earlier events are missing.
func TestNothingFollowsWhatIsLost(t *testing.T) {
	disk, said := fullDisk{}, bytes.Buffer{}
	code := execute(t.Context(), "slipway", cli.Streams{Out: &disk, Err: &said}, []string{"init", "phase", "certs", "ca", "-o", "json", "--config", "none.yaml"})
	if code != 1 || disk.writes != 1 || !strings.Contains(said.String(), "none.yaml") {
		t.Errorf("exit code %d, error %q; %d writes, output %q", code, said.String(), disk.writes, disk.String())
	}
}

// TestLostOutputIsAnError, even for a command that doesn't check its output itself.
func TestLostOutputIsAnError(t *testing.T) {
	disk, said := fullDisk{}, bytes.Buffer{}
	code := execute(t.Context(), "slipway", cli.Streams{Out: &disk, Err: &said}, []string{"token", "generate"})
	if code != 1 || strings.Count(said.String(), "\n") != 2 || !strings.Contains(said.String(), syscall.ENOSPC.Error()+"\n") {
		t.Errorf("exit code %d, error %q, want one with a remedy", code, said.String())
	}
	fact.In(t, said.String(), "slipway", "succeeded", "lost")
}

type explainedError struct{ error }

func (explainedError) Remedy() string { return "run `slipway reset`" }

// TestFailure: the remedy is on its own line. A terminal gets both wrapped to its width, and commands in one piece.
func TestFailure(t *testing.T) {
	err := errors.WithMessage(explainedError{errors.New("this host is a node of another cluster already")}, "phase preflight")
	var piped bytes.Buffer
	explain("kubeadm", cli.Streams{Err: &piped}, err)
	if want := "kubeadm: phase preflight: this host is a node of another cluster already\n  run `kubeadm reset`\n"; piped.String() != want {
		t.Errorf("piped: got %q, want %q", piped.String(), want)
	}

	t.Setenv("TERM", "xterm")
	master, tty, failed := pty.Open()
	if failed != nil {
		t.Skip("this host has no pseudo terminals:", failed)
	}
	defer master.Close()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 40}); err != nil {
		t.Fatal(err)
	}
	s := cli.Streams{Err: tty, Out: io.Discard}
	terminal := onTerminal(&s)
	if terminal == nil {
		t.Fatal("a pseudo terminal is not taken for a terminal")
	}
	terminal.Close()
	explain("kubeadm", s, err)
	tty.Close()
	shown, _ := io.ReadAll(master) // ends with an error once the other side is closed
	want := "kubeadm: phase preflight: this host is a\r\nnode of another cluster already\r\n  → run `kubeadm reset`\r\n"
	if string(shown) != want {
		t.Errorf("terminal: got %q, want %q", shown, want)
	}
}

// TestInterrupt: a wait ends at once when the program is interrupted, and the error says what it waited for. A lost SSH session
// sends a hangup more than once, which doesn't keep the program from ending in order.
func TestInterrupt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the lock of the node is for root")
	}
	for name, row := range map[string]struct {
		sent os.Signal
		more int
		word string
	}{
		"interrupt":   {os.Interrupt, 0, "interrupt"},
		"terminate":   {syscall.SIGTERM, 0, "terminated"},
		"hangup":      {syscall.SIGHUP, 0, "hangup"},
		"two hangups": {syscall.SIGHUP, 1, "hangup"},
	} {
		t.Run(name, func(t *testing.T) {
			caught := make(chan os.Signal, 1) // under nohup, the program would inherit that the signal is ignored
			signal.Notify(caught, row.sent)
			defer signal.Stop(caught)
			interrupt(t, row.sent, row.more, row.word)
		})
	}
}

// interrupt sends a signal during a wait, and more of them once the wait has ended, before the program can end.
func interrupt(t *testing.T, sent os.Signal, more int, word string) {
	t.Helper()
	root := t.TempDir()
	cmd, stderr := startWait(t, root)
	fill(t, stderr) // the program can't print its error, so it can't end
	for i := range 1 + more {
		if i > 0 {
			awaitUnlocked(t, filepath.Join(root, "run/slipway.lock"))
		}
		if err := cmd.Process.Signal(sent); err != nil {
			t.Fatal(err)
		}
	}
	last, err := io.ReadAll(stderr)
	if err != nil {
		t.Fatal(err)
	}
	last = bytes.TrimLeft(last, "\x00")
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the program ended with %v; want exit code 1", err)
	}
	if !bytes.HasPrefix(last, []byte("slipway: ")) || bytes.Count(last, []byte("\n")) != 1 {
		t.Errorf("the error is %q, want one line", last)
	}
	fact.In(t, string(last), "phase wait-control-plane/health", "kubelet", "`journalctl -u kubelet`", word+" signal")
}

// startWait starts a program that waits for a kubelet. It has read standard error up to the line that says so.
func startWait(t *testing.T, root string) (cmd *exec.Cmd, stderr *os.File) {
	t.Helper()
	for _, dir := range []string{"etc", "run", "proc"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	stderr, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stderr.Close() })
	cmd = exec.CommandContext(t.Context(), "slipway", "--rootfs", root, "init", "phase", "wait-control-plane")
	cmd.Stderr = output
	err = cmd.Start()
	output.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stderr)
	for line := ""; !strings.Contains(line, "kubelet"); {
		if line, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("the program ended before the wait: %v; its last line: %q", err, line)
		}
	}
	return cmd, stderr
}

// fill fills a pipe with zeros, so that its writers wait until somebody reads.
func fill(t *testing.T, pipe *os.File) {
	t.Helper()
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", pipe.Fd()), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(again)
	for err == nil {
		_, err = unix.Write(again, []byte{0})
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
}

// awaitUnlocked waits until the run that has a node's lock ends.
func awaitUnlocked(t *testing.T, path string) {
	t.Helper()
	lock, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_SH); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadOutput: a run whose output nobody reads finishes its work, and fails.
func TestUnreadOutput(t *testing.T) {
	unread, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	unread.Close()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "slipway", "init", "phase", "certs", "ca", "-o", "json", "--cert-dir", dir)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = output, &said
	err = cmd.Run()
	output.Close()
	if err == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("the program ended with %v; want exit code 1", err)
	}
	fact.In(t, said.String(), "succeeded", "lost", "broken pipe")
	if _, err := os.Stat(filepath.Join(dir, "ca.crt")); err != nil {
		t.Error(err)
	}
}

func TestCompletePath(t *testing.T) {
	for path, want := range map[string]string{
		"":                       "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"/opt/bin:/usr/bin:/bin": "/opt/bin:/usr/bin:/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/sbin",
	} {
		if got := completePath(path); got != want {
			t.Errorf("%q becomes %q, want %q", path, got, want)
		}
	}
}
