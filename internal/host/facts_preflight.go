// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
)

// fetchBody is more than any endpoint that is asked here answers.
const fetchBody = 64 << 10

// Fetch implements Facts.
func (r *Real) Fetch(ctx context.Context, p Probe) ([]byte, error) {
	tlsConfig, err := p.tls()
	if err != nil {
		return nil, err
	}
	client := &http.Client{
		Timeout:       probeTimeout,
		Transport:     &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return nil, errors.Wrap(err, "fetch")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err // names the method and the URL
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, fetchBody))
	if resp.StatusCode != http.StatusOK {
		text := strings.TrimSpace(string(body[:min(len(body), probeBody)]))
		return nil, &ProbeError{URL: p.URL, Status: resp.StatusCode, Body: text}
	}
	return body, errors.Wrapf(err, "GET %s", p.URL)
}

// PortHolder implements Facts. Other users' processes can be seen only by
// root.
func (r *Real) PortHolder(port int) (Process, bool) {
	sockets := listening(port)
	if len(sockets) == 0 {
		return Process{}, false
	}
	fds, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return Process{}, false
	}
	for _, fd := range fds {
		target, err := os.Readlink(fd)
		if err != nil || !sockets[target] { // it may have ended meanwhile
			continue
		}
		pid, err := strconv.Atoi(strings.Split(fd, "/")[2])
		if err != nil {
			continue
		}
		return Process{PID: pid, Name: programName(pid)}, true
	}
	return Process{}, false
}

// programName prefers the program's file to /proc/PID/comm, which the kernel
// cuts after 15 bytes: kube-controller-manager is longer.
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
