// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
)

// layerFiles are a node's configuration files, under their paths on the node: in machine those of every machine in the lab, in
// node those of Kubernetes nodes.
//
//go:embed all:layer
var layerFiles embed.FS

// machineLinks are symbolic links: the lab's own unit, and units that a machine without hardware, terminals and package updates
// doesn't need.
var machineLinks = map[string]string{
	"etc/systemd/system/multi-user.target.wants/lab-node.service": "/usr/lib/systemd/system/lab-node.service",

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
}

// nodeLinks are the units that a node's packages enable, and kubectl's configuration file.
var nodeLinks = map[string]string{
	"etc/systemd/system/multi-user.target.wants/containerd.service": "/usr/lib/systemd/system/containerd.service",
	"etc/systemd/system/multi-user.target.wants/kubelet.service":    "/usr/lib/systemd/system/kubelet.service",

	"root/.kube/config": "/etc/kubernetes/admin.conf",
}

// layerDirs are directories with their modes.
var layerDirs = map[string]os.FileMode{
	"root":            0o700,
	"root/.kube":      0o700,
	"usr/lib/modules": 0o755, // a place to bind the machine's modules, if it has any
	"var/log/journal": 0o755,
	"etc/lab":         0o755,
}

// nodeLayers makes the layers of a node's root above Debian: one with a release's own programs, and below it one shared by all
// releases. The programs are hard links, so they cost no space.
func (r *run) nodeLayers(ctx context.Context, picks []pick) (own, common string, err error) {
	installed, shared := map[string]string{}, map[string]string{}
	for _, p := range picks {
		place := shared
		program, _ := r.source(p)
		if program.ofRelease() {
			place = installed
		}
		if place[onNode[p.program]], err = r.programPath(p); err != nil {
			return "", "", err
		}
	}
	common, err = r.layer(ctx, "layer", "laying out the nodes' files", shared, content{"machine", machineLinks}, content{"node", nodeLinks})
	if err != nil {
		return "", "", err
	}
	own, err = r.part(ctx, r.stamp("release", pairs(installed)...), "laying out the nodes' programs",
		func(dir string) error { return linkPrograms(dir, installed) })
	return own, common, err
}

// content is a directory of layerFiles with its links.
type content struct {
	dir   string
	links map[string]string
}

func (r *run) layer(ctx context.Context, kind, doing string, installed map[string]string, contents ...content) (string, error) {
	inputs := append([]string{fmt.Sprint(layerDirs)}, pairs(installed)...)
	for _, c := range contents {
		files, err := c.files()
		if err != nil {
			return "", err
		}
		hash, err := treeHash(files, func(string) bool { return true })
		if err != nil {
			return "", err
		}
		inputs = append(inputs, hash, fmt.Sprint(c.links))
	}
	return r.part(ctx, r.stamp(kind, inputs...), doing, func(dir string) error {
		for _, c := range contents {
			if err := c.fill(dir); err != nil {
				return err
			}
		}
		return fillLayer(dir, installed)
	})
}

func (c content) files() (fs.FS, error) {
	files, err := fs.Sub(layerFiles, path.Join("layer", c.dir))
	return files, errors.Wrap(err, "cannot read the node's files")
}

func (c content) fill(dir string) error {
	files, err := c.files()
	if err != nil {
		return err
	}
	if err := os.CopyFS(dir, files); err != nil {
		return errors.Wrap(err, "cannot copy the node's files")
	}
	for name, target := range c.links {
		if err := place(dir, name, func(path string) error { return os.Symlink(target, path) }); err != nil {
			return err
		}
	}
	return nil
}

// pairs returns the keys and values of m, sorted by key.
func pairs(m map[string]string) []string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		list = append(list, key, m[key])
	}
	return list
}

func fillLayer(dir string, installed map[string]string) error {
	if err := linkPrograms(dir, installed); err != nil {
		return err
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

func linkPrograms(dir string, installed map[string]string) error {
	for name, program := range installed {
		if err := place(dir, name, func(path string) error { return os.Link(program, path) }); err != nil {
			return err
		}
	}
	return nil
}

// place calls put with the path of name below dir, after making its parent directories.
func place(dir, name string, put func(path string) error) error {
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return errors.Wrap(err, "cannot make a directory of a node")
	}
	return errors.Wrap(put(path), "cannot place a part of a node")
}
