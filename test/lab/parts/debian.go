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

	"github.com/slipway-k8s/slipway/test/lab/internal/filelock"
	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// The Debian releases of the nodes and of virtual machines.
const (
	suite   = "bookworm"
	vmSuite = "trixie"
)

// machinePackages are on every machine of the lab, on top of Debian's minimal base: an init system with D-Bus, and network tools.
var machinePackages = []string{
	"systemd", "systemd-sysv", "dbus", "ca-certificates", "iproute2", "iptables", "nftables", "kmod", "procps",
	"mount", "util-linux", "hostname", "iputils-ping",
}

// packageSet holds the further packages of one kind of machine, in a layer of their own.
type packageSet struct {
	kind, of string
	packages []string
}

var (
	// nodePackages are what Kubernetes expects of a host.
	nodePackages = packageSet{"debian-node", "nodes", []string{"runc", "conntrack", "ebtables", "socat", "ethtool"}}
	// barePackages are usual in clouds' images: the first-boot setup, and a way in. cryptography accepts any of several packages in
	// place of the third.
	barePackages = packageSet{"debian-bare", "bare machines", []string{"cloud-init", "openssh-server", "python3-cffi-backend", "sudo"}}
)

// hostPrograms are programs that the lab itself runs, each with its Debian package.
var hostPrograms = [][2]string{
	{"debootstrap", "debootstrap"},
	{"systemd-nspawn", "systemd-container"},
	{"ip", "iproute2"},
}

// Debian installs the nodes' Debian, without the lab's own layers, and returns its layers, topmost first. They must not be
// changed.
func (b *Builder) Debian(ctx context.Context) (layers []string, err error) {
	err = b.do(ctx, func(ctx context.Context, r *run) (err error) {
		layers, err = r.debian(ctx, nodePackages)
		return err
	})
	return layers, err
}

// InstallHere installs the programs that are missing on this machine, each given with its Debian package.
func (b *Builder) InstallHere(ctx context.Context, programs ...[2]string) error {
	if len(missingHere(programs)) == 0 {
		return nil
	}
	unlock, err := filelock.Take(ctx, b.path(aptLock), b.waiting("installing programs"))
	if err != nil {
		return err
	}
	defer unlock()
	missing := missingHere(programs)
	if len(missing) == 0 { // another run has installed them
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

func missingHere(programs [][2]string) (packages []string) {
	for _, row := range programs {
		if _, err := exec.LookPath(row[0]); err != nil {
			packages = append(packages, row[1])
		}
	}
	return packages
}

// debian installs Debian for one kind of machine: the lowest layers of its root.
func (r *run) debian(ctx context.Context, set packageSet) (tree, error) {
	if r.platform.Foreign() {
		return nil, errors.Errorf("the lab's nodes run on this machine's processor, which isn't of the architecture %s", r.platform.Architecture)
	}
	if err := r.InstallHere(ctx, hostPrograms...); err != nil {
		return nil, err
	}
	include := strings.Join(machinePackages, ",")
	name := r.stamp("debian", suite, include)
	base, err := r.part(ctx, name, "installing Debian", func(dir string) error {
		return r.debootstrap(ctx, suite, dir, include)
	})
	if err != nil {
		return nil, err
	}
	upper, err := r.part(ctx, r.stamp(set.kind, name, strings.Join(set.packages, ",")), "installing Debian's packages for "+set.of, func(dir string) error {
		return addPackages(ctx, base, dir, set.packages)
	})
	return tree{filepath.Join(upper, layerDir), base}, err
}

// dpkg needn't wait until each file is on the disk: an incomplete installation is thrown away.
const (
	unsafe      = "force-unsafe-io"
	dpkgOptions = "etc/dpkg/dpkg.cfg.d/lab"
)

// debootstrap installs Debian.
func (r *run) debootstrap(ctx context.Context, suite, dir, include string) error {
	if err := r.startDebootstrap(ctx, suite, dir, include); err != nil {
		return err
	}
	if r.platform.Foreign() {
		if err := r.secondStage(ctx, dir); err != nil {
			return err
		}
	}
	return tidyDebian(dir)
}

// startDebootstrap runs debootstrap. For another architecture, this is only the first stage: it downloads all packages, and unpacks
// the required ones.
func (r *run) startDebootstrap(ctx context.Context, suite, dir, include string) error {
	argv := []string{"debootstrap", "--variant=minbase", "--include=" + include}
	if r.platform.Foreign() {
		argv = append(argv, "--foreign", "--arch="+r.platform.Architecture)
	}
	// Mounts that an interrupted run leaves behind go away with this mount namespace.
	return thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		if err := place(dir, dpkgOptions, func(path string) error { return os.WriteFile(path, []byte(unsafe+"\n"), 0o644) }); err != nil {
			return err
		}
		_, err := output(ctx, "", nil, append(argv, suite, dir)...)
		return err
	})
}

// archives is where debootstrap and apt keep the packages they have downloaded.
const archives = "var/cache/apt/archives"

func tidyDebian(dir string) error {
	if err := removeFiles(filepath.Join(dir, dpkgOptions)); err != nil {
		return errors.Wrap(err, "cannot tidy up")
	}
	return removeContents(filepath.Join(dir, archives), filepath.Join(dir, "var/lib/apt/lists"))
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
