// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/hinshun/vt10x"
	"github.com/pkg/errors"
)

var update = flag.Bool("update", false, "write the golden files")

// display is a terminal whose size can change. It keeps everything written to it.
type display struct {
	vt10x.Terminal
	written bytes.Buffer
}

func newDisplay(width, height int) *display {
	return &display{Terminal: vt10x.New(vt10x.WithSize(width, height))}
}

// Write does the kernel's work for a terminal: a new line starts in the first column.
func (d *display) Write(p []byte) (int, error) {
	d.written.Write(p)
	_, err := d.Terminal.Write(bytes.ReplaceAll(p, []byte("\n"), []byte("\r\n")))
	return len(p), err
}

// screen is the user's view.
func (d *display) screen() string {
	lines := strings.Split(d.String(), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight(l, " ")
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n") + "\n"
}

// newRun returns the UI of a run on d, which also gets the results.
func newRun(t *testing.T, d *display) *Terminal {
	t.Helper()
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	u := newTerminal(d, d.Size, d)
	t.Cleanup(func() {
		if !d.CursorVisible() || strings.Contains(d.written.String(), "\x1b[?25") {
			t.Error("the cursor was hidden: a run that is killed leaves the terminal without it")
		}
	})
	return u
}

const joinCommand = "slipway join 192.0.2.11:6443 --token abcdef.0123456789abcdef \\\n" +
	"\t--discovery-token-ca-cert-hash sha256:0c0258d70d6f72db5be4f2119287a7512a64f8e41ccbcbe16ce27407ba7b39e5"

// begin plays the start of a run: phases that run side by side, some with children, and the same warning twice. Nothing happens
// at the time of a tick, so that the order is always the same.
func begin(u *Terminal) (endCerts, endKubeconfig func(err error)) {
	in, end := u.Start("preflight")
	in.Printf("Checking this host")
	for range 2 {
		in.Warn("Swap: swap is on, and the kubelet does not start with it unless failSwapOn is false",
			"turn it off with `swapoff --all`, and remove it from /etc/fstab")
	}
	time.Sleep(330 * time.Millisecond)
	end(nil)
	_, certs := u.Start("certs")
	ca, endCA := u.Start("certs/ca")
	ca.Printf("Generating the certificate and key %q", "ca")
	_, kubeconfig := u.Start("kubeconfig")
	admin, endAdmin := u.Start("kubeconfig/admin")
	time.Sleep(time.Second + tick/3)
	endCA(nil)
	admin.Printf("Writing /etc/kubernetes/admin.conf and\n/etc/kubernetes/super-admin.conf")
	u.Skip("upload-certs", "--upload-certs was not given")
	sa, endSA := u.Start("certs/sa")
	sa.Printf("Generating the key pair %q", "sa")
	time.Sleep(150 * time.Millisecond)
	return func(err error) { endSA(err); certs(err) }, func(err error) { endAdmin(err); kubeconfig(err) }
}

// runs are the runs in the golden files.
var runs = map[string]func(u *Terminal, look func(moment string)){
	"good": func(u *Terminal, look func(string)) {
		endCerts, endKubeconfig := begin(u)
		look("while phases run")
		endCerts(nil)
		endKubeconfig(nil)
		wait, end := u.Start("wait-control-plane")
		wait.Printf("Waiting for the control plane, up to 4m0s")
		time.Sleep(75*time.Second + tick/2)
		_, _ = fmt.Fprintf(u, "W0101 00:00:00.000000 1 the log of a library\n")
		look("a phase that runs right after another")
		end(nil)
		show, end := u.Start("show-join-command")
		show.Nextf("Cluster %q is running, with its control plane on %s.", "kubernetes", "cp-1")
		show.Nextf("Nodes become Ready once you install a network add-on:")
		show.Nextf("  https://kubernetes.io/docs/concepts/cluster-administration/addons/")
		show.Nextf("Workers can join with:")
		show.Result(joinCommand)
		end(nil)
		u.Close()
		look("at the end")
	},
	"failed": func(u *Terminal, look func(string)) {
		endCerts, endKubeconfig := begin(u)
		failure := errors.New("cannot write /etc/kubernetes/pki/sa.key: no space left on device")
		endCerts(failure)
		look("while the other phase stops")
		endKubeconfig(errors.Wrap(context.Canceled, "phase kubeconfig/admin"))
		u.Close()
		u.Failure("slipway: phase certs/sa: "+failure.Error()+"\n  [disk-full] the disk of /etc/kubernetes/pki\n    | \x1b[31m0 bytes\tavailable",
			"make room on the disk, and run the same command again")
		look("at the end")
	},
	"failed-twice": func(u *Terminal, look func(string)) {
		endCerts, endKubeconfig := begin(u)
		endCerts(errors.New("cannot write /etc/kubernetes/pki/sa.key: no space left on device"))
		endKubeconfig(errors.New("/etc/kubernetes/admin.conf is a directory"))
		u.Close()
		look("at the end")
	},
	"details": func(u *Terminal, look func(string)) {
		u.ShowDetails()
		endCerts, endKubeconfig := begin(u)
		endKubeconfig(nil)
		endCerts(errors.New("no space left on device"))
		u.Close()
		look("at the end")
	},
}

// TestTerminalGolden compares the screen at some moments of a run with testdata/golden/terminal.
func TestTerminalGolden(t *testing.T) {
	for name, run := range runs {
		for _, width := range []int{80, 40} {
			t.Run(fmt.Sprintf("%s-%d", name, width), func(t *testing.T) {
				var got strings.Builder
				synctest.Test(t, func(t *testing.T) {
					d := newDisplay(width, 40)
					run(newRun(t, d), func(moment string) {
						synctest.Wait()
						fmt.Fprintf(&got, "--- %s\n%s", moment, d.screen())
					})
				})
				compare(t, fmt.Sprintf("%s-%d", name, width), got.String())
			})
		}
	}
}

func compare(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("..", "..", "testdata", "golden", "terminal", name+".txt")
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the screen differs from %s (-want +got):\n%s", path, diff)
	}
}

// TestJoinCommandIsNotWrapped writes it unchanged, however narrow the terminal.
func TestJoinCommandIsNotWrapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisplay(40, 40)
		runs["good"](newRun(t, d), func(string) {})
		if !strings.HasSuffix(d.written.String(), "\n"+joinCommand+"\n") {
			t.Errorf("the end is %q", d.written.String()[d.written.Len()-300:])
		}
	})
}

// TestTerminalWithoutABlock: a terminal that can't move the cursor gets no escape sequences, and the lines that stay are the
// same.
func TestTerminalWithoutABlock(t *testing.T) {
	for _, term := range []string{"dumb", ""} {
		synctest.Test(t, func(t *testing.T) {
			d := newDisplay(80, 40)
			u := newRun(t, d)
			t.Setenv("TERM", term)
			u = newTerminal(d, u.size, d)
			runs["good"](u, func(string) {})
			compare(t, "dumb-80", d.screen())
			if strings.Contains(d.written.String(), "\x1b") {
				t.Errorf("TERM=%q: escape sequences in %q", term, d.written.String())
			}
		})
	}
}

// TestColors: only marks have colors, and they can be switched off.
func TestColors(t *testing.T) {
	for noColor, want := range map[string]string{"": " \x1b[32m✓\x1b[0m certs", "1": " ✓ certs"} {
		d := newDisplay(80, 40)
		u := newRun(t, d)
		t.Setenv("NO_COLOR", noColor)
		u = newTerminal(d, u.size, d)
		in, end := u.Start("certs")
		in.Printf("Generating")
		end(nil)
		u.Close()
		if !strings.Contains(d.written.String(), want) {
			t.Errorf("NO_COLOR=%q: %q has no %q", noColor, d.written.String(), want)
		}
	}
}

// TestMorePhasesThanLines: the cursor can't go back to lines outside the screen, so the block is never higher than the screen.
func TestMorePhasesThanLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisplay(80, 4)
		u := newRun(t, d)
		var ends []func(error)
		for i := range 6 {
			in, end := u.Start(fmt.Sprintf("phase-%d", i))
			in.Printf("at work")
			ends = append(ends, end)
		}
		time.Sleep(tick*3 + tick/2)
		synctest.Wait()
		if got := d.screen(); strings.Count(got, "at work") != 3 || !strings.Contains(got, "phase-5") {
			t.Errorf("the screen is\n%s", got)
		}
		for _, end := range ends {
			end(nil)
		}
		u.Close()
		if got := strings.Count(d.written.String(), "✓"); got != 6 {
			t.Errorf("%d of 6 phases got their line", got)
		}
	})
}

// TestNarrowedWindow: each time they're drawn, the live lines are cut to the window's width.
func TestNarrowedWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisplay(80, 10)
		u := newRun(t, d)
		in, end := u.Start("certs")
		in.Printf("x")
		time.Sleep(tick + tick/2)
		synctest.Wait()
		d.Resize(30, 10)
		in.Printf("Generating the certificate and key of the API server")
		time.Sleep(2 * tick)
		synctest.Wait()
		if got := d.screen(); strings.Count(got, "certs") != 1 || strings.Count(got, "\n") != 1 {
			t.Errorf("the screen is\n%s", got)
		}
		end(nil)
		u.Close()
	})
}

// TestResultOutsideOfAPhase writes the result at once, unchanged: a command such as `token generate` prints nothing else.
func TestResultOutsideOfAPhase(t *testing.T) {
	d := newDisplay(80, 10)
	var results bytes.Buffer
	u := newTerminal(d, d.Size, &results)
	u.Result("abcdef.0123456789abcdef")
	if results.String() != "abcdef.0123456789abcdef\n" {
		t.Errorf("results %q", results.String())
	}
	u.Close()
	if d.written.Len() > 0 {
		t.Errorf("written %q", d.written.String())
	}
}

// TestRealTerminal wraps lines to the terminal's width, or to 80 columns if the terminal doesn't know it.
func TestRealTerminal(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	for columns, want := range map[uint16]string{
		30: " ! this line is wider than a\r\n   terminal of 30 columns\r\n   → widen it\r\n",
		0:  " ! this line is wider than a terminal of 30 columns\r\n   → widen it\r\n",
	} {
		master, tty, err := pty.Open()
		if err != nil {
			t.Skip("this host has no pseudo terminals:", err)
		}
		defer master.Close()
		if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: columns}); err != nil {
			t.Fatal(err)
		}
		u := NewTerminal(tty, io.Discard)
		u.Warn("this line is wider than a terminal of 30 columns", "widen it")
		u.Close()
		tty.Close()
		got, _ := io.ReadAll(master) // ends with an error once the other side is closed
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("a terminal of %d columns got (-want +got):\n%s", columns, diff)
		}
	}
}
