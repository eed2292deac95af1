// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
)

// layerFiles are the configuration files of a node, as they lie in it.
//
//go:embed all:layer
var layerFiles embed.FS

// layerLinks are symbolic links: enabled units, units that a node without
// hardware, terminals and package updates can do without, and kubectl's file.
var layerLinks = map[string]string{
	"etc/systemd/system/multi-user.target.wants/lab-node.service":   "/usr/lib/systemd/system/lab-node.service",
	"etc/systemd/system/multi-user.target.wants/containerd.service": "/usr/lib/systemd/system/containerd.service",
	"etc/systemd/system/multi-user.target.wants/kubelet.service":    "/usr/lib/systemd/system/kubelet.service",

	"etc/systemd/system/apt-daily.timer":           "/dev/null",
	"etc/systemd/system/apt-daily-upgrade.timer":   "/dev/null",
	"etc/systemd/system/dpkg-db-backup.timer":      "/dev/null",
	"etc/systemd/system/e2scrub_all.timer":         "/dev/null",
	"etc/systemd/system/e2scrub_reap.service":      "/dev/null",
	"etc/systemd/system/fstrim.timer":              "/dev/null",
	"etc/systemd/system/getty.target":              "/dev/null",
	"etc/systemd/system/console-getty.service":     "/dev/null",
	"etc/systemd/system/systemd-udevd.service":     "/dev/null",
	"etc/systemd/system/systemd-pstore.service":    "/dev/null",
	"etc/systemd/system/systemd-homed.service":     "/dev/null",
	"etc/systemd/system/systemd-firstboot.service": "/dev/null",

	"root/.kube/config": "/etc/kubernetes/admin.conf",
}

// layerDirs are directories with a mode of their own.
var layerDirs = map[string]os.FileMode{
	"root":            0o700,
	"root/.kube":      0o700,
	"usr/lib/modules": 0o755, // a place to bind the machine's, if it has any
	"var/log/journal": 0o755,
	"etc/lab":         0o755,
}

// layer makes the upper layer of the nodes' root: configuration and programs.
// Programs are hard links, so it costs no space.
func (b *builder) layer() (string, error) {
	files, err := fs.Sub(layerFiles, "layer")
	if err != nil {
		return "", errors.Wrap(err, "cannot read the node's files")
	}
	hash, err := treeHash(files, func(string) bool { return true })
	if err != nil {
		return "", err
	}
	inputs := []string{hash, fmt.Sprint(layerLinks, layerDirs, onNode)}
	for _, name := range slices.Sorted(maps.Keys(onNode)) {
		inputs = append(inputs, b.programs[name])
	}
	return b.part(stamp("layer", inputs...), "laying out the nodes' files", func(dir string) error {
		return b.fillLayer(dir, files)
	})
}

func (b *builder) fillLayer(dir string, files fs.FS) error {
	if err := os.CopyFS(dir, files); err != nil {
		return errors.Wrap(err, "cannot copy the node's files")
	}
	for name, target := range layerLinks {
		if err := place(dir, name, func(path string) error { return os.Symlink(target, path) }); err != nil {
			return err
		}
	}
	for program, name := range onNode {
		if err := place(dir, name, func(path string) error { return os.Link(b.programs[program], path) }); err != nil {
			return err
		}
	}
	for name, mode := range layerDirs {
		if err := place(dir, name, func(path string) error { return os.MkdirAll(path, mode) }); err != nil {
			return err
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			return errors.Wrap(err, "cannot set a directory's mode")
		}
	}
	return nil
}

// place puts something at name below dir, making the directories above it.
func place(dir, name string, put func(path string) error) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return errors.Wrap(err, "cannot make a directory of a node")
	}
	return errors.Wrap(put(path), "cannot place a part of a node")
}
