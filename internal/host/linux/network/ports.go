// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
)

func (s Stack) PortFree(address string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err == nil {
		return l.Close()
	}
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		by := ""
		if p, found := s.PortHolder(port); found {
			by = fmt.Sprintf(" by %s (pid %d)", p.Name, p.PID)
		}
		return errors.Wrapf(unix.EADDRINUSE, "port %d is in use%s", port, by)
	case errors.Is(err, unix.EACCES):
		return fault.WithRemedy(errors.Wrapf(unix.EACCES, "port %d cannot be checked", port), "run the command as root")
	}
	return errors.Wrapf(err, "port %d", port)
}

// PortHolder sees other users' processes only as root.
func (s Stack) PortHolder(port int) (host.Process, bool) {
	sockets := listening(port)
	if len(sockets) == 0 {
		return host.Process{}, false
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return host.Process{}, false
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !sockets[target] { // the process may have exited
			continue
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			continue
		}
		return host.Process{PID: pid, Name: programName(pid)}, true
	}
	return host.Process{}, false
}

// programName prefers the executable to /proc/PID/comm, which the kernel truncates to 15 bytes: kube-controller-manager is
// longer.
func programName(pid int) string {
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		return strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(comm))
}

// listening returns the sockets listening on a TCP port, written like the links in /proc/PID/fd. proc(5) describes the tables.
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
