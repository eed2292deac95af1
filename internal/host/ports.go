// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// PortFree implements Facts.
func (r *Real) PortFree(port int) error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
	if err == nil {
		return l.Close()
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("port %d is in use%s: %w", port, listener(port), unix.EADDRINUSE)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("port %d cannot be tried: %w: run as root", port, unix.EACCES)
	}
	return errors.Wrapf(err, "port %d", port)
}

// listener says which process listens on a port, as far as this one may see.
func listener(port int) string {
	sockets := listening(port)
	if len(sockets) == 0 {
		return ""
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return ""
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !sockets[target] {
			continue
		}
		pid := strings.Split(fd, "/")[2]
		name, err := os.ReadFile("/proc/" + pid + "/comm")
		if err != nil {
			return ""
		}
		return fmt.Sprintf(" by %s (pid %s)", strings.TrimSpace(string(name)), pid)
	}
	return ""
}

// listening returns the sockets that listen on a TCP port, in the form that
// links in /proc/PID/fd have. The tables are described in proc(5).
func listening(port int) map[string]bool {
	const stateListen = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	out := map[string]bool{}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			if len(f) > 9 && strings.HasSuffix(f[1], suffix) && f[3] == stateListen {
				out["socket:["+f[9]+"]"] = true
			}
		}
	}
	return out
}
