// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"io/fs"
	"slices"

	"github.com/pkg/errors"
)

// ModulesDir has a directory for each installed kernel's modules, named by its release.
const ModulesDir = "/lib/modules/"

// ModuleList is modprobe's list of modules in a kernel's directory.
const ModuleList = "/modules.dep"

// ModulesGone reports whether another kernel's modules are installed, and the running kernel's aren't: some distributions delete
// these in an upgrade, before the restart. In a container, it's false: what's installed there isn't for the running kernel.
func ModulesGone(h Reader) bool {
	release, err := h.KernelRelease()
	if err != nil || inContainer(h) {
		return false
	}
	if _, err := h.Stat(ModulesDir + release + ModuleList); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	kernels, err := h.ReadDir(ModulesDir)
	return err == nil && slices.ContainsFunc(kernels, func(k fs.DirEntry) bool {
		_, err := h.Stat(ModulesDir + k.Name() + ModuleList)
		return err == nil
	})
}

// inContainer finds the files by which systemd, Docker and Podman mark containers.
func inContainer(h Reader) bool {
	return slices.ContainsFunc([]string{"/run/systemd/container", "/.dockerenv", "/run/.containerenv"}, func(path string) bool {
		_, err := h.Stat(path)
		return err == nil
	})
}

// ModulesRemedy says how a host gets a kernel module that it lacks.
func ModulesRemedy(h Reader) string {
	if ModulesGone(h) {
		return "restart the host with a kernel whose modules are installed: those of the running kernel (`uname -r`) are not in /lib/modules"
	}
	return "install the extra modules of this kernel: linux-modules-extra-$(uname -r) on Ubuntu (on a Raspberry Pi, " +
		"linux-modules-extra-raspi), kernel-modules-extra-$(uname -r) on RHEL 10 and its relatives; or use a kernel that has the module"
}
