// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// layerDir is the layer in a part's directory. While the part was made, the overlay's other directories lay beside it.
const layerDir = "root"

// noServices is a script that keeps packages from starting services.
const noServices = "usr/sbin/policy-rc.d"

// addPackages installs Debian packages above base: dir gets a layer with all the changes.
func addPackages(ctx context.Context, base, dir string, packages []string) error {
	upper, work, merged := filepath.Join(dir, layerDir), filepath.Join(dir, "work"), filepath.Join(dir, "merged")
	for _, path := range []string{upper, work, merged} {
		if err := os.Mkdir(path, 0o755); err != nil {
			return errors.Wrap(err, "cannot make a layer")
		}
	}
	// The mounts are visible only in this mount namespace, and go away with it.
	err := thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		// Others use the layer later without this overlay's other half, so it must hold files and directories whole.
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s,redirect_dir=off,metacopy=off,index=off", base, upper, work)
		if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
			return errors.Wrap(err, "cannot mount the installation")
		}
		defer func() { _ = unix.Unmount(merged, unix.MNT_DETACH) }()
		return install(ctx, merged, packages)
	})
	if err != nil {
		return err
	}
	return errors.Wrap(removeFiles(work, merged, filepath.Join(upper, noServices),
		filepath.Join(upper, "var/lib/apt/lists"), filepath.Join(upper, "var/cache/apt")), "cannot tidy up")
}

// install runs apt in root; the calling thread must have its own mount namespace.
func install(ctx context.Context, root string, packages []string) error {
	if err := unix.Mount("proc", filepath.Join(root, "proc"), "proc", 0, ""); err != nil {
		return errors.Wrap(err, "cannot mount /proc of the installation")
	}
	if err := useResolver(root); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, noServices), []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return errors.Wrap(err, "cannot keep services from starting")
	}
	env := []string{searchPath, "HOME=/root", "TMPDIR=/tmp", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"}
	installing := []string{"install", "--yes", "--no-install-recommends", "--option", "DPkg::Options::=--" + unsafe}
	for _, args := range [][]string{{"update"}, append(installing, packages...)} {
		if _, err := output(ctx, "", env, slices.Concat([]string{"chroot", root, "apt-get", "-q"}, args)...); err != nil {
			return err
		}
	}
	return nil
}

// useResolver gives programs in root this machine's present name resolution.
func useResolver(root string) error {
	const path = "/etc/resolv.conf"
	if _, err := os.Stat(path); os.IsNotExist(err) {
		return nil
	}
	target := filepath.Join(root, path)
	info, err := os.Lstat(target)
	if err == nil && info.Mode().Type() == os.ModeSymlink { // systemd-resolved's, which leads nowhere before a boot
		err = os.ErrNotExist
		if err := os.Remove(target); err != nil {
			return errors.Wrap(err, "cannot give the installation names")
		}
	}
	if os.IsNotExist(err) {
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return errors.Wrap(err, "cannot give the installation names")
		}
	}
	return errors.Wrap(unix.Mount(path, target, "", unix.MS_BIND, ""), "cannot give the installation names")
}
