// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// suite is the Debian release of the nodes.
const suite = "bookworm"

// machinePackages are what any machine of the lab has beyond Debian's minimal
// base: an init system with D-Bus, and tools of the network.
var machinePackages = []string{
	"systemd", "systemd-sysv", "dbus", "ca-certificates", "iproute2", "iptables", "nftables", "kmod", "procps",
	"mount", "util-linux", "hostname", "iputils-ping",
}

var (
	// nodePackages are what Kubernetes expects of a host.
	nodePackages = slices.Concat(machinePackages, []string{"runc", "conntrack", "ebtables", "socat", "ethtool"})
	// barePackages are what images of clouds have: what sets a machine up at its
	// first boot, and a way in. The third is one of several that cryptography takes;
	// debootstrap does not choose.
	barePackages = slices.Concat(machinePackages, []string{"cloud-init", "openssh-server", "python3-cffi-backend", "sudo"})
)

// hostPrograms are what the lab itself runs, each with its Debian package.
var hostPrograms = [][2]string{
	{"debootstrap", "debootstrap"},
	{"systemd-nspawn", "systemd-container"},
	{"ip", "iproute2"},
	{"minisign", "minisign"},
}

// Debian installs the Debian that nodes have, without what the lab puts on top of it, and returns its directory, which
// must not be changed. It also installs programs on this machine, each given with its package.
func Debian(ctx context.Context, o Options, programs ...[2]string) (string, error) {
	b, unlock, err := newBuilder(o)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := b.hostPackages(ctx, programs...); err != nil {
		return "", err
	}
	return b.debian(ctx, "nodes", nodePackages)
}

// hostPackages installs what the lab needs on this machine and is missing, and more programs.
func (b *builder) hostPackages(ctx context.Context, more ...[2]string) error {
	var missing []string
	for _, row := range slices.Concat(hostPrograms, more) {
		if _, err := exec.LookPath(row[0]); err != nil {
			missing = append(missing, row[1])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	return b.log.Do("installing "+strings.Join(missing, ", "), func() error {
		if _, err := output(ctx, "", env, "apt-get", "-q", "update"); err != nil {
			return err
		}
		_, err := output(ctx, "", env, slices.Concat([]string{"apt-get", "-q", "install", "--yes",
			"--no-install-recommends", "--option", "DPkg::Lock::Timeout=300"}, missing)...)
		return err
	})
}

// debian makes the lowest layer of a root: Debian as it is installed, with these packages.
func (b *builder) debian(ctx context.Context, of string, packages []string) (string, error) {
	include := strings.Join(packages, ",")
	return b.part(stamp("debian", suite, include), "installing Debian for the "+of, func(dir string) error {
		// Its own mount namespace takes along what an interrupted run has mounted.
		err := thread.Do(func() error {
			if err := thread.PrivateMounts(); err != nil {
				return err
			}
			_, err := output(ctx, "", nil, "debootstrap", "--variant=minbase", "--include="+include, suite, dir)
			return err
		})
		if err != nil {
			return err
		}
		return removeContents(filepath.Join(dir, "var/cache/apt/archives"), filepath.Join(dir, "var/lib/apt/lists"))
	})
}

// removeContents empties directories whose files only cost space.
func removeContents(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.RemoveAll(dir); err != nil {
			return errors.Wrap(err, "cannot empty a directory")
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return errors.Wrap(err, "cannot make an empty directory")
		}
	}
	return nil
}
