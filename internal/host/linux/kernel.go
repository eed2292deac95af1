// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package linux

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/host/linux/program"
)

// moduleTimeout bounds loading a module, which takes milliseconds, or seconds on a slow host.
const moduleTimeout = 2 * time.Minute

func (h *Host) SetParameter(name, value string) (bool, error) {
	path := filepath.Join(h.root, host.ProcSys, name)
	now, err := os.ReadFile(path)
	if err != nil {
		return false, host.Explain("read the kernel parameter", path, err)
	}
	if strings.TrimSpace(string(now)) == value {
		return false, nil
	}
	return true, host.Explain("set the kernel parameter", path, os.WriteFile(path, []byte(value+"\n"), 0))
}

func (h *Host) LoadModule(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, moduleTimeout)
	defer cancel()
	_, err := program.Run(ctx, "", "modprobe", "--", name)
	remedy := host.ModulesRemedy(h)
	if errors.Is(err, exec.ErrNotFound) {
		remedy = "install kmod"
	}
	return fault.WithRemedy(errors.Wrapf(err, "load the kernel module %s", name), remedy)
}

func (h *Host) SwapOff(area string) error {
	err := swapCall(unix.SYS_SWAPOFF, area)
	if errors.Is(err, unix.EINVAL) { // not in use as swap
		return nil
	}
	if errors.Is(err, unix.ENOMEM) {
		return fault.New("turn off swap on "+area+": its content does not fit into memory", "stop the programs that use so much memory, or keep swap with --swap=keep")
	}
	return host.Explain("turn off swap on", area, err)
}

func (h *Host) SwapOn(area string) error {
	err := swapCall(unix.SYS_SWAPON, area)
	if errors.Is(err, unix.EBUSY) { // in use already
		return nil
	}
	return host.Explain("turn on swap on", area, err)
}

// swapCall is swapon(2) or swapoff(2), without flags.
func swapCall(number uintptr, area string) error {
	path, err := unix.BytePtrFromString(area)
	if err != nil {
		return err
	}
	if _, _, code := unix.Syscall(number, uintptr(unsafe.Pointer(path)), 0, 0); code != 0 {
		return code
	}
	return nil
}

// RestoreContexts runs restorecon(8).
func (h *Host) RestoreContexts(ctx context.Context, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	_, err := program.Run(ctx, "", "restorecon", append([]string{"-R", "--"}, paths...)...)
	return fault.WithRemedy(errors.Wrap(err, "restore SELinux contexts"), "install policycoreutils, or run `restorecon -R` on the written files")
}

// EnsureDir gives new directories the policy's SELinux contexts before anything is in them, so all that's made there inherits these.
// Otherwise they'd inherit their parent's, and a confined container might not read them. Where containers aren't confined, no context
// matters, so it's no error if restorecon fails or is missing.
func (h *Host) EnsureDir(path string, mode fs.FileMode) error {
	if !h.SELinux() {
		return h.Root.EnsureDir(path, mode)
	}
	h.labelling.Lock()
	defer h.labelling.Unlock()
	made := ""
	for dir := filepath.Clean(path); ; dir = filepath.Dir(dir) {
		if _, err := h.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = dir
	}
	err := h.Root.EnsureDir(path, mode)
	if err != nil || made == "" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if h.RestoreContexts(ctx, []string{filepath.Join(h.root, made)}) != nil {
		return nil
	}
	return h.SyncFiles(made)
}

func (h *Host) SELinux() bool {
	_, err := h.Lstat("/sys/fs/selinux/enforce")
	return !errors.Is(err, fs.ErrNotExist)
}
