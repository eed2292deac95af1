// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/yaml"
)

// bundleRow is a part in a list for `slipway bundle create`: docs/bundle.md.
type bundleRow struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Version string `json:"version"`
	Source  string `json:"source"`
	License string `json:"license"`
	File    string `json:"file"`
}

// bundled maps the programs in a bundle to their types. Nothing needs crictl, so only bare machines get it.
var bundled = map[string]string{
	"kubelet": "program", "kubectl": "program", "containerd": "program", "containerd-shim-runc-v2": "program", "ctr": "program", "crictl": "program",
	"bridge": "cni-plugin", "loopback": "cni-plugin", "ptp": "cni-plugin", "host-local": "cni-plugin", "portmap": "cni-plugin",
	"flannel": "cni-plugin",
}

// license is the license of all components. Debian's programs have their own.
const license = "Apache-2.0"

// Bundle makes a directory with a list for `slipway bundle create`: the programs and images of a minor version of Kubernetes,
// empty for the newest.
func (b *Builder) Bundle(ctx context.Context, minor string) (dir string, err error) {
	at, err := b.releaseAt(minor)
	if err != nil {
		return "", err
	}
	release := b.releases[at]
	err = b.do(ctx, func(ctx context.Context, r *run) error {
		picks := release.bundlePicks()
		var debian tree
		group, building := errgroup.WithContext(ctx)
		group.Go(func() (err error) {
			debian, err = r.debianFiles(building)
			return err
		})
		group.Go(func() error { return r.fetch(building, picks) })
		group.Go(func() error { return r.build(building, picks) })
		if err := group.Wait(); err != nil {
			return err
		}
		dir, err = r.bundle(ctx, release, debian)
		return err
	})
	return dir, err
}

func (r *versioned) bundleImages() []imageRecipe {
	return slices.Concat(r.commonImages()[:1], r.images(), r.flannelImages())
}

// bundlePicks returns all programs that go into a bundle, and the program of the tests' Pods.
func (r *versioned) bundlePicks() []pick {
	picks := r.picks(slices.Collect(maps.Keys(bundled))...)
	for _, i := range append(r.bundleImages(), r.probe()) {
		picks = append(picks, i.picks...)
	}
	return inOrder(picks)
}

func (r *run) bundle(ctx context.Context, release *versioned, debian tree) (string, error) {
	tools, err := debianTools(debian)
	if err != nil {
		return "", err
	}
	table, err := r.table(release.bundleImages(), tools)
	if err != nil {
		return "", err
	}
	probe, err := r.table([]imageRecipe{release.probe()}, tools)
	if err != nil {
		return "", err
	}
	rows, err := r.bundleRows(release, debian)
	if err != nil {
		return "", err
	}
	for _, i := range table {
		rows = append(rows, bundleImage(i, release.versions.Kubernetes))
	}
	list, err := yaml.Marshal(map[string]any{
		"apiVersion": "slipway.bundle/v1", "kind": "BundleParts", "kubernetesVersion": release.versions.Kubernetes,
		"os": "linux", "architecture": r.platform.Architecture, "parts": rows,
	})
	if err != nil {
		return "", errors.Wrap(err, "cannot write the bundle's list")
	}
	return r.part(ctx, r.stamp("bundle", string(list), fmt.Sprint(table, probe)), "laying out the parts of a bundle", func(dir string) error {
		if err := r.writeImages(filepath.Join(dir, imagesArchive), table); err != nil {
			return err
		}
		if err := r.writeImages(filepath.Join(dir, ProbeArchive), probe); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "bundle.yaml"), list, 0o644)
	})
}

const (
	imagesArchive = "images.tar"
	// ProbeArchive holds the image of the tests' Pods, which isn't in any bundle.
	ProbeArchive = "probe.tar"
)

func (r *run) bundleRows(release *versioned, debian tree) ([]bundleRow, error) {
	var rows []bundleRow
	for _, p := range inOrder(release.picks(slices.Collect(maps.Keys(bundled))...)) {
		program, dir := r.source(p)
		module, version, err := sourceOf(dir, program.pkg)
		if err != nil {
			return nil, err
		}
		path, err := r.programPath(p)
		if err != nil {
			return nil, err
		}
		rows = append(rows, bundleRow{p.program, bundled[p.program], version, "pkg:golang/" + module + "@" + version, license, path})
	}
	version, err := debianVersion(debian, "runc")
	return append(rows, bundleRow{"runc", "program", version, "pkg:deb/debian/runc@" + version, license, debian.find("usr/sbin/runc")}), err
}

// debianVersion returns the version of a Debian package.
func debianVersion(debian tree, name string) (string, error) {
	status, err := os.ReadFile(debian.find("var/lib/dpkg/status"))
	if err != nil {
		return "", errors.Wrap(err, "cannot read the version of a Debian package")
	}
	found := regexp.MustCompile(`(?ms)^Package: ` + regexp.QuoteMeta(name) + `$.*?^Version: (\S+)$`).FindSubmatch(status)
	if found == nil {
		return "", errors.Errorf("the nodes' Debian has no %s", name)
	}
	return string(found[1]), nil
}

// sourceOf returns the module that holds a package, and its version.
func sourceOf(component, pkg string) (module, version string, err error) {
	gomod, err := os.ReadFile(filepath.Join(component, "go.mod"))
	if err != nil {
		return "", "", errors.Wrap(err, "cannot read a component's versions")
	}
	for module = pkg; module != "."; module = filepath.Dir(module) {
		if version, err = requiredVersion(string(gomod), module); err == nil {
			return module, version, nil
		}
	}
	return "", "", errors.Errorf("%s requires no module with %s", component, pkg)
}

// bundleImage returns the row of an image. Its version is its tag.
func bundleImage(i image, kubernetes string) bundleRow {
	_, tag, _ := strings.Cut(i.name, ":")
	of := cmp.Or(i.of, "the components of Kubernetes "+kubernetes)
	row := bundleRow{i.name, "image", tag, "made of " + of + " by the project's lab", license, imagesArchive}
	if i.debian != "" {
		row.License += " AND " + i.debian
	}
	return row
}
