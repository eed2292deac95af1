// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"runtime"
	"slices"

	"github.com/pkg/errors"
)

// Platform is everything that depends on a processor's architecture.
type Platform struct {
	Architecture    string // as Go, Debian and bundles call it
	Emulator        string // QEMU's program
	emulatorPackage string // Debian's, with this program
	Machine         string // QEMU's model of a machine
	processor       string // the model that QEMU emulates
	Console         string // the kernel's name for the first serial port
}

var platforms = []Platform{
	{"amd64", "qemu-system-x86_64", "qemu-system-x86", "pc", "Westmere,+rdrand", "ttyS0"},
	// Later processors of Arm sign pointers and have wide vectors, which cost an emulator much.
	{"arm64", "qemu-system-aarch64", "qemu-system-arm", "virt", "cortex-a72", "ttyAMA0"},
}

// platformOf returns the platform of an architecture, by default this machine's.
func platformOf(architecture string) (Platform, error) {
	architecture = cmp.Or(architecture, runtime.GOARCH)
	at := slices.IndexFunc(platforms, func(p Platform) bool { return p.Architecture == architecture })
	if at < 0 {
		return Platform{}, errors.Errorf("the lab has nothing for the architecture %q", architecture)
	}
	return platforms[at], nil
}

// Foreign reports whether this machine's processor is of another architecture, and can't run the platform's programs.
func (p Platform) Foreign() bool { return p.Architecture != runtime.GOARCH }

// Emulated returns QEMU's arguments for a machine with an emulated processor.
func (p Platform) Emulated() []string {
	return []string{"-machine", p.Machine, "-accel", "tcg,thread=multi,tb-size=1024", "-cpu", p.processor}
}

// emulator returns QEMU's program with its Debian package.
func (p Platform) emulator() [2]string { return [2]string{p.Emulator, p.emulatorPackage} }

// goEnv is the lab's environment for the Go command, whatever flags Slipway is built with: its programs contain no C.
func (p Platform) goEnv() []string {
	return []string{"CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off", "GOARCH=" + p.Architecture}
}

// stamp names a part. Another platform's parts are of kinds of their own, so each platform sweeps only its own.
func (b *Builder) stamp(kind string, inputs ...string) string {
	if b.platform.Foreign() {
		kind += "-" + b.platform.Architecture
	}
	return stamp(kind, inputs...)
}
