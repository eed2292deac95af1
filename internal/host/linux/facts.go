// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/net/http/httpproxy"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host/linux/files"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
	"github.com/slipway-k8s/slipway/internal/redact"
)

// programTimeout bounds a run of `program --version`, which reads a hundred megabytes first: on a slow disk or an emulated
// processor, this takes many seconds.
const programTimeout = 2 * time.Minute

// Hostname returns the host's name, trimmed and in lower case.
func (h *Host) Hostname() (string, error) {
	name, err := os.Hostname()
	if err != nil {
		return "", errors.Wrap(err, "read the host's name")
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", fault.New("this host has no name", "set one with `hostnamectl hostname NAME`")
	}
	return name, nil
}

func (h *Host) EffectiveUID() int { return os.Geteuid() }

func (h *Host) Environ() []string { return os.Environ() }

// NumCPU counts the CPUs this process may use.
func (h *Host) NumCPU() int { return runtime.NumCPU() }

func (h *Host) Now() time.Time { return time.Now() }

func (h *Host) CPUTime() (used time.Duration) {
	for _, whose := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(whose, &u); err == nil {
			used += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return used
}

func (h *Host) MemoryBytes() (uint64, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0, errors.Wrap(err, "read the size of the memory (sysinfo)")
	}
	return uint64(info.Totalram) * uint64(info.Unit), nil //nolint:unconvert // 32 bits on some architectures
}

// Swap finds no /proc/swaps on a kernel without swap support.
func (h *Host) Swap() ([]string, error) {
	text, err := h.ReadFile("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var areas []string
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] { // without the header
		areas = append(areas, files.Unescape(strings.Fields(line)[0]))
	}
	return areas, nil
}

func (h *Host) LookPath(name string) (string, error) { return exec.LookPath(name) }

func (h *Host) KernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", errors.Wrap(err, "read the kernel's release (uname)")
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

func (h *Host) ProgramVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	out, err := program.Run(ctx, "", path, "--version")
	if errors.Is(err, context.DeadlineExceeded) {
		err = fault.WithRemedy(err, "see what keeps this host so busy (`top`), and run the same command again")
	}
	return strings.TrimSpace(out), err
}

func (h *Host) ProxyFor(target string) (string, error) {
	u, err := url.Parse(target)
	if err != nil {
		return "", errors.Wrap(err, "find the proxy for a URL")
	}
	proxy, err := httpproxy.FromEnvironment().ProxyFunc()(u)
	if err != nil {
		return "", errors.Wrapf(err, "find the proxy for %s", target)
	}
	if proxy == nil {
		return "", nil
	}
	return redact.Proxy(proxy.String()), nil
}
