// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// vmPackages are a virtual machine's: a kernel, what boots it, a way in, and what Kubernetes expects of a host.
func (p Platform) vmPackages() []string {
	return []string{
		"systemd", "systemd-sysv", "dbus", "udev", "linux-image-" + p.Architecture, "initramfs-tools", "zstd", "e2fsprogs", "kmod", "procps", "mount",
		"util-linux", "hostname", "ca-certificates", "openssh-server", "systemd-resolved", "iproute2", "iputils-ping", "iptables",
		"nftables", "conntrack", "socat", "ethtool", "apparmor",
	}
}

// vmPrograms are programs that this machine needs to make disks and to boot virtual machines besides the emulator, each with its
// Debian package.
var vmPrograms = [][2]string{
	{"debootstrap", "debootstrap"},
	{"mkfs.ext4", "e2fsprogs"},
	{"qemu-img", "qemu-utils"},
	{"ssh", "openssh-client"},
	{"ssh-keygen", "openssh-client"},
}

// vmLinks enable the network, and switch off the work that Debian does at night.
var vmLinks = map[string]string{
	"etc/resolv.conf": "../run/systemd/resolve/stub-resolv.conf",
	"etc/systemd/system/dbus-org.freedesktop.network1.service":                            "/usr/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/multi-user.target.wants/systemd-networkd.service":                 "/usr/lib/systemd/system/systemd-networkd.service",
	"etc/systemd/system/sockets.target.wants/systemd-networkd.socket":                     "/usr/lib/systemd/system/systemd-networkd.socket",
	"etc/systemd/system/network-online.target.wants/systemd-networkd-wait-online.service": "/usr/lib/systemd/system/systemd-networkd-wait-online.service",

	"etc/systemd/system/apt-daily.timer":         "/dev/null",
	"etc/systemd/system/apt-daily-upgrade.timer": "/dev/null",
	"etc/systemd/system/dpkg-db-backup.timer":    "/dev/null",
	"etc/systemd/system/e2scrub_all.timer":       "/dev/null",
	"etc/systemd/system/e2scrub_reap.service":    "/dev/null",
	"etc/systemd/system/fstrim.timer":            "/dev/null",
}

// diskSize is the size of a virtual machine's disk; its file is sparse.
const diskSize = "10G"

// Disk is the disk of a virtual machine that has never booted, with the kernel that boots it and the key that lets root in.
// Nobody may change it.
type Disk struct {
	Image, Kernel, Initrd, Key string
	Platform                   Platform
}

// Disk installs Debian 13 with further packages on a disk, and on this machine the programs that boot it.
func (b *Builder) Disk(ctx context.Context, packages ...string) (*Disk, error) {
	var dir string
	err := b.do(ctx, func(ctx context.Context, r *run) (err error) {
		dir, err = r.disk(ctx, packages)
		return err
	})
	return &Disk{filepath.Join(dir, "disk"), filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "initrd"), filepath.Join(dir, "key"), b.platform}, err
}

func (r *run) disk(ctx context.Context, packages []string) (string, error) {
	if err := r.InstallHere(ctx, append(vmPrograms, r.platform.emulator())...); err != nil {
		return "", err
	}
	installed, doing := r.platform.vmPackages(), "installing Debian for virtual machines"
	if r.platform.Foreign() { // this machine can't add packages later
		installed, packages, doing = append(installed, packages...), nil, doing+" of "+r.platform.Architecture+" in an emulated one"
	}
	include := strings.Join(installed, ",")
	name := r.stamp("vm-debian", vmSuite, include)
	base, err := r.part(ctx, name, doing, func(dir string) error {
		return r.debootstrap(ctx, vmSuite, dir, include)
	})
	if err != nil {
		return "", err
	}
	layers := tree{base}
	if len(packages) > 0 {
		name = r.stamp("vm-packages", name, strings.Join(packages, ","))
		upper, err := r.part(ctx, name, "installing "+strings.Join(packages, ", "), func(dir string) error {
			return addPackages(ctx, base, dir, packages)
		})
		if err != nil {
			return "", err
		}
		layers = tree{filepath.Join(upper, layerDir), base}
	}
	files, err := r.layer(ctx, "vm-files", "laying out the files of virtual machines", nil, content{"vm", vmLinks})
	if err != nil {
		return "", err
	}
	return r.part(ctx, r.stamp("vm-disk", name, filepath.Base(files), diskSize), "making a disk", func(dir string) error {
		return makeDisk(ctx, append(tree{files}, layers...), dir)
	})
}

// makeDisk makes a Disk of layers in dir. It adds a layer with a new key.
func makeDisk(ctx context.Context, layers tree, dir string) error {
	key, allowed, merged := filepath.Join(dir, "key"), filepath.Join(dir, "allowed"), filepath.Join(dir, "merged")
	if _, err := output(ctx, "", nil, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", key); err != nil {
		return err
	}
	if err := place(allowed, "root/.ssh/authorized_keys", func(path string) error { return os.Rename(key+".pub", path) }); err != nil {
		return err
	}
	for path, mode := range map[string]os.FileMode{"": 0o755, "root": 0o700, "root/.ssh": 0o700} {
		if err := os.Chmod(filepath.Join(allowed, path), mode); err != nil {
			return errors.Wrap(err, "cannot protect the key's directory")
		}
	}
	if err := os.Mkdir(merged, 0o755); err != nil {
		return errors.Wrap(err, "cannot make a directory")
	}
	layers = append(tree{allowed}, layers...)
	for name, to := range map[string]string{"boot/vmlinuz-*": "vmlinuz", "boot/initrd.img-*": "initrd"} {
		found := layers.glob(name)
		if len(found) != 1 {
			return errors.Errorf("the installation has %d files %s", len(found), name)
		}
		if err := os.Link(layers.find(found[0]), filepath.Join(dir, to)); err != nil {
			return errors.Wrap(err, "cannot take the kernel")
		}
	}
	if err := mergeAnd(layers, merged, func() error { return MakeExt4(ctx, merged, filepath.Join(dir, "disk"), diskSize) }); err != nil {
		return err
	}
	return errors.Wrap(removeFiles(merged, allowed), "cannot tidy up")
}

// mergeAnd calls fn while dir shows layers as one tree.
func mergeAnd(layers tree, dir string, fn func() error) error {
	return thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		if err := unix.Mount("overlay", dir, "overlay", unix.MS_RDONLY, "lowerdir="+strings.Join(layers, ":")); err != nil {
			return errors.Wrap(err, "cannot mount the installation")
		}
		defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
		return fn()
	})
}

// MakeExt4 makes a disk with a file system that has the contents of a directory.
func MakeExt4(ctx context.Context, dir, disk, size string, options ...string) error {
	argv := slices.Concat([]string{"mkfs.ext4", "-q", "-d", dir}, options, []string{disk, size})
	_, err := output(ctx, "", nil, argv...)
	return err
}
