// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"
)

// virtiofsd shares a directory with a virtual machine.
var virtiofsd = [2]string{"/usr/lib/qemu/virtiofsd", "qemu-system-common"}

// secondStageLimit is how long the scripts of all packages may take in an emulated machine: on two idle processors, they take 20
// minutes.
const secondStageLimit = 4 * time.Hour

// debianFiles returns the nodes' Debian to take files from. Nothing of it may run.
func (r *run) debianFiles(ctx context.Context) (tree, error) {
	if !r.platform.Foreign() {
		return r.debian(ctx, nodePackages)
	}
	if err := r.InstallHere(ctx, hostPrograms...); err != nil {
		return nil, err
	}
	include := strings.Join(slices.Concat(machinePackages, nodePackages.packages), ",")
	dir, err := r.part(ctx, r.stamp("debian-files", suite, include), "unpacking Debian's packages of "+r.platform.Architecture, func(dir string) error {
		if err := r.startDebootstrap(ctx, suite, dir, include); err != nil {
			return err
		}
		if err := unpackPackages(ctx, dir); err != nil {
			return err
		}
		return tidyDebian(dir)
	})
	return tree{dir}, err
}

// unpackPackages unpacks all packages that debootstrap has downloaded, and lists them as dpkg does, but runs none of their
// scripts.
func unpackPackages(ctx context.Context, root string) error {
	debs, err := filepath.Glob(filepath.Join(root, archives, "*.deb"))
	if err != nil {
		return errors.Wrap(err, "cannot list Debian's packages")
	}
	var status strings.Builder
	for _, deb := range debs {
		if err := unpackPackage(ctx, deb, root); err != nil {
			return err
		}
		fields, err := output(ctx, "", nil, "dpkg-deb", "--field", deb)
		if err != nil {
			return err
		}
		status.WriteString(fields + "\n")
	}
	return errors.Wrap(os.WriteFile(filepath.Join(root, "var/lib/dpkg/status"), []byte(status.String()), 0o644), "cannot list Debian's packages")
}

// unpackPackage unpacks a package's files; further arguments of tar may choose some of them. `dpkg-deb --extract` would replace
// links such as /lib with directories.
func unpackPackage(ctx context.Context, deb, dir string, only ...string) error {
	from := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	files, err := from.StdoutPipe()
	if err != nil {
		return errors.Wrap(err, "cannot unpack a package")
	}
	if err := from.Start(); err != nil {
		return errors.Wrap(err, "cannot unpack a package")
	}
	_, err = outputOf(ctx, files, "", nil, slices.Concat([]string{"tar", "--extract", "--keep-directory-symlink", "--directory", dir}, only)...)
	if ended := from.Wait(); err == nil {
		err = errors.Wrapf(ended, "cannot unpack %s", filepath.Base(deb))
	}
	return err
}

// secondStage finishes an installation that debootstrap has begun. This machine can't run its programs, so a virtual one does,
// whose root is the installation. Debian's kernel can mount it without an initial RAM disk, because virtiofs is built in.
func (r *run) secondStage(ctx context.Context, root string) error {
	if err := r.InstallHere(ctx, r.platform.emulator(), virtiofsd); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, secondStageLimit)
	defer cancel()
	dir, err := os.MkdirTemp("", "lab-foreign-") // a socket's path has to be short
	if err != nil {
		return errors.Wrap(err, "cannot make a directory for a virtual machine")
	}
	defer os.RemoveAll(dir)
	kernel, err := takeKernel(ctx, root, dir)
	if err != nil {
		return err
	}
	socket, console := filepath.Join(dir, "socket"), filepath.Join(dir, "console")
	stop, err := shareDirectory(ctx, root, socket)
	if err != nil {
		return err
	}
	_, err = output(ctx, "", nil, append([]string{r.platform.Emulator}, r.platform.secondStage(kernel, socket, console)...)...)
	said := stop()
	if err != nil {
		return errors.WithMessage(err, said)
	}
	return finished(root, console)
}

// takeKernel unpacks the kernel that the installation is about to get.
func takeKernel(ctx context.Context, root, dir string) (string, error) {
	debs, err := filepath.Glob(filepath.Join(root, archives, "linux-image-[0-9]*.deb"))
	if err != nil || len(debs) != 1 {
		return "", errors.Errorf("the installation gets %d kernels, and one is needed to finish it", len(debs))
	}
	if err := unpackPackage(ctx, debs[0], dir, "--wildcards", "./boot/vmlinuz-*"); err != nil {
		return "", err
	}
	kernels, err := filepath.Glob(filepath.Join(dir, "boot", "vmlinuz-*"))
	if err != nil || len(kernels) != 1 {
		return "", errors.Errorf("%s has %d kernels", filepath.Base(debs[0]), len(kernels))
	}
	return kernels[0], nil
}

// shareDirectory lets a virtual machine mount a directory. stop ends that, and returns what the server said.
func shareDirectory(ctx context.Context, dir, socket string) (stop func() string, err error) {
	// The server keeps each file open that the machine remembers.
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, errors.Wrap(err, "cannot read the limit of open files")
	}
	ctx, cancel := context.WithCancel(ctx)
	server := exec.CommandContext(ctx, virtiofsd[0], "--socket-path="+socket, fmt.Sprintf("--rlimit-nofile=%d", min(files.Max, 1_000_000)),
		"-o", "source="+dir, "-o", "xattr", "-o", "cache=always")
	var said strings.Builder
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		cancel()
		return nil, errors.Wrap(err, "cannot share a directory with a virtual machine")
	}
	stop = func() string {
		cancel()
		_ = server.Wait() // it has ended with the machine's connection, or was killed
		return lastLines(said.String())
	}
	waiting, enough := context.WithTimeout(ctx, time.Minute)
	defer enough()
	if err := waitForFile(waiting, socket); err != nil {
		return nil, errors.WithMessage(err, stop())
	}
	return stop, nil
}

// secondStageCommand forgets files every two minutes, because the server may have too few file descriptors for all of them.
const secondStageCommand = "(while sleep 120; do echo 3 > /proc/sys/vm/drop_caches; done) & /debootstrap/debootstrap --second-stage; sync"

// secondStage returns QEMU's arguments. The kernel panics as soon as its first program ends, and QEMU ends with it. All files are
// on this machine then.
func (p Platform) secondStage(kernel, socket, console string) []string {
	const memory = "2048M"
	return append(p.Emulated(), "-smp", "2", "-m", memory, "-nodefaults", "-no-reboot", "-display", "none", "-serial", "file:"+console,
		"-object", "memory-backend-memfd,id=memory,share=on,size="+memory, "-machine", "memory-backend=memory",
		"-chardev", "socket,id=root,path="+socket, "-device", "vhost-user-fs-pci,chardev=root,tag=root",
		"-kernel", kernel, "-append", "console="+p.Console+" panic=-1 mitigations=off rootfstype=virtiofs root=root rw LC_ALL=C "+
			"PATH=/usr/sbin:/usr/bin:/sbin:/bin init=/bin/sh -- -c \""+secondStageCommand+"\"")
}

// finished returns an error if the second stage has failed. A successful one removes its directory.
func finished(root, console string) error {
	const dir = "debootstrap"
	if _, err := os.Stat(filepath.Join(root, dir)); os.IsNotExist(err) {
		return nil
	}
	seen, _ := os.ReadFile(console) // either may be missing
	said, _ := os.ReadFile(filepath.Join(root, dir, "debootstrap.log"))
	return errors.Errorf("the second stage of debootstrap has failed: %s\nthe machine's console ends with: %s", lastLines(string(said)), lastLines(string(seen)))
}
