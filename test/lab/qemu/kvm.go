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

// accelerated are QEMU's arguments for each accelerator. Without tsc=nowatchdog (see arguments), a guest that doesn't get enough
// processor time falls back to a slow clock.
var accelerated = map[string][]string{
	"kvm": {"-accel", "kvm", "-cpu", "host"},
	"tcg": {"-accel", "tcg,thread=multi,tb-size=1024", "-cpu", "Westmere,+rdrand"},
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
	if _, err := os.Stat("/dev/kvm"); err != nil {
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
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", append(accelerated["kvm"], "-m", "1024", "-nodefaults", "-no-reboot",
		"-display", "none", "-serial", "file:"+console, "-kernel", disk.Kernel, "-initrd", disk.Initrd,
		"-append", "console=ttyS0 panic=-1 rdinit=/bin/sh")...)
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
