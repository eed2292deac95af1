// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pseudoTerminal returns both ends of one: pty(7).
func pseudoTerminal(t *testing.T) (screen, terminal *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	return screen, terminal
}

// TestTerminal: what a person sees of a phase that ends well, of one below
// another that fails, and of what they say meanwhile.
func TestTerminal(t *testing.T) {
	screen, terminal := pseudoTerminal(t)
	var results bytes.Buffer
	u := NewTerminal("slipway", terminal, &results)
	in, end := u.Start("certs")
	in.Printf("Generating %q", "ca")
	time.Sleep(3 * tick)
	end(nil)
	_, end = u.Start("kubeconfig/admin")
	u.Warnf("swap is on")
	in.Result("the join command")
	end(errors.New("no space"))
	u.Skip("addon", "--skip-phases")
	seen := make([]byte, 1<<14)
	n, err := screen.Read(seen)
	if err != nil {
		t.Fatal(err)
	}
	text := string(seen[:n])
	for _, want := range []string{
		`    Generating "ca"\r\n`, `. certs 0\.[0-9]s`, `✓ certs +0\.[0-9]s\r\n`, `  ! swap is on\r\n`,
		`✗ kubeconfig/admin +0\.[0-9]s\r\n`, `- addon +skipped: --skip-phases\r\n`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s is not in %q", want, text)
		}
	}
	if strings.Contains(text, "\x1b[?25l") {
		t.Errorf("the cursor is hidden: %q", text)
	}
	if results.String() != "the join command\n" {
		t.Errorf("results %q", results.String())
	}
}
