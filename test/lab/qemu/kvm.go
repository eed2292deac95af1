// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/parts"
)

// accelerated returns QEMU's arguments for an accelerator. Without tsc=nowatchdog (see arguments), a guest that doesn't get enough
// processor time falls back to a slow clock.
func accelerated(p parts.Platform, accelerator string) []string {
	if accelerator == "kvm" {
		return []string{"-machine", p.Machine, "-accel", "kvm", "-cpu", "host"}
	}
	return p.Emulated()
}

// probeLimit is how long a kernel may take to start its first program with KVM; it takes about a second.
const probeLimit = 30 * time.Second

// Accelerator returns how machines run here: with KVM if a kernel boots with it, and emulated otherwise. On some machines
// /dev/kvm opens, but guests crash.
func Accelerator(ctx context.Context, disk *parts.Disk) (string, error) {
	return accelerator(ctx, disk)
}

var (
	probing sync.Mutex
	probed  = map[string]string{} // by kernel
)

func accelerator(ctx context.Context, disk *parts.Disk) (string, error) {
	probing.Lock()
	defer probing.Unlock()
	if name := probed[disk.Kernel]; name != "" {
		return name, nil
	}
	boots, err := kvmBoots(ctx, disk)
	if err != nil {
		return "", err
	}
	probed[disk.Kernel] = "tcg"
	if boots {
		probed[disk.Kernel] = "kvm"
	}
	return probed[disk.Kernel], nil
}

// kvmBoots boots only a kernel with its initial RAM disk.
func kvmBoots(ctx context.Context, disk *parts.Disk) (bool, error) {
	if _, err := os.Stat("/dev/kvm"); err != nil || disk.Platform.Foreign() {
		return false, nil
	}
	dir, err := os.MkdirTemp("", "kvm-")
	if err != nil {
		return false, errors.Wrap(err, "cannot make a directory for a trial of KVM")
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	console := filepath.Join(dir, "console")
	qemu := exec.CommandContext(ctx, disk.Platform.Emulator, append(accelerated(disk.Platform, "kvm"), "-m", "1024", "-nodefaults", "-no-reboot",
		"-display", "none", "-serial", "file:"+console, "-kernel", disk.Kernel, "-initrd", disk.Initrd,
		"-append", "console="+disk.Platform.Console+" panic=-1 rdinit=/bin/sh")...)
	if err := qemu.Start(); err != nil {
		return false, errors.Wrap(err, "cannot start QEMU")
	}
	ended := make(chan struct{})
	go func() {
		_ = qemu.Wait()
		close(ended)
	}()
	defer func() {
		cancel()
		<-ended
	}()
	for {
		said, err := os.ReadFile(console)
		if err == nil && bytes.Contains(said, []byte("Run /bin/sh as init process")) {
			return true, nil
		}
		select {
		case <-ended: // for lack of time, or because of a crash
			return false, nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}
