// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/pkg/errors"
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

// bundled are the programs in a bundle, with their type. Nothing needs crictl, so
// nodes that are no bare machines do not have it.
var bundled = map[string]string{
	"kubelet": "program", "kubectl": "program", "containerd": "program", "containerd-shim-runc-v2": "program", "ctr": "program", "crictl": "program",
	"bridge": "cni-plugin", "loopback": "cni-plugin", "ptp": "cni-plugin", "host-local": "cni-plugin", "portmap": "cni-plugin",
	"flannel": "cni-plugin",
}

// license is that of all components. What comes from Debian has its own.
const license = "Apache-2.0"

// BundleParts makes a directory with a list for `slipway bundle create`: the
// programs and images of the last of the releases in o, by default the newest.
func BundleParts(ctx context.Context, o Options) (string, error) {
	b, unlock, err := newBuilder(o)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := b.hostPackages(ctx); err != nil {
		return "", err
	}
	if err := b.buildPrograms(ctx); err != nil {
		return "", err
	}
	base, err := b.debian(ctx, "nodes", nodePackages)
	if err != nil {
		return "", err
	}
	return b.bundleParts(base)
}

func (b *builder) bundleParts(base string) (string, error) {
	r := b.releases[len(b.releases)-1]
	tools, err := debianTools(base)
	if err != nil {
		return "", err
	}
	pause, probe := r.commonImages()
	table := slices.Concat([]image{pause}, r.images(tools), r.flannelImages(tools))
	rows, err := r.bundleRows(b.Components, base)
	if err != nil {
		return "", err
	}
	for _, i := range table {
		rows = append(rows, bundleImage(i, r.versions.Kubernetes))
	}
	list, err := yaml.Marshal(map[string]any{
		"apiVersion": "slipway.bundle/v1", "kind": "BundleParts", "kubernetesVersion": r.versions.Kubernetes,
		"os": "linux", "architecture": runtime.GOARCH, "parts": rows,
	})
	if err != nil {
		return "", errors.Wrap(err, "cannot write the bundle's list")
	}
	name := stamp("bundle", string(list), fmt.Sprint(table, probe))
	if err := b.sweep(map[string]bool{name: true}, unused); err != nil {
		return "", err
	}
	return b.part(name, "laying out the parts of a bundle", func(dir string) error {
		if err := writeImages(filepath.Join(dir, imagesArchive), dir, table); err != nil {
			return err
		}
		if err := writeImages(filepath.Join(dir, ProbeArchive), dir, []image{probe}); err != nil {
			return err
		}
		if err := removeFiles(filepath.Join(dir, "layer.tar")); err != nil {
			return errors.Wrap(err, "cannot tidy up")
		}
		return os.WriteFile(filepath.Join(dir, "bundle.yaml"), list, 0o644)
	})
}

const (
	imagesArchive = "images.tar"
	// ProbeArchive has the image of the tests' Pods, which is in no bundle.
	ProbeArchive = "probe.tar"
)

// bundleRows are the files of a bundle.
func (r *built) bundleRows(components, base string) ([]bundleRow, error) {
	var rows []bundleRow
	for _, p := range programs {
		if bundled[p.name] == "" {
			continue
		}
		module, version, err := sourceOf(filepath.Join(components, r.dir(p.component)), p.pkg)
		if err != nil {
			return nil, err
		}
		rows = append(rows, bundleRow{p.name, bundled[p.name], version, "pkg:golang/" + module + "@" + version, license, r.programs[p.name]})
	}
	status, err := os.ReadFile(filepath.Join(base, "var/lib/dpkg/status"))
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the version of runc")
	}
	found := regexp.MustCompile(`(?ms)^Package: runc$.*?^Version: (\S+)$`).FindSubmatch(status)
	if found == nil {
		return nil, errors.New("the nodes' Debian has no runc")
	}
	return append(rows, bundleRow{"runc", "program", string(found[1]), "pkg:deb/debian/runc@" + string(found[1]), license, filepath.Join(base, "usr/sbin/runc")}), nil
}

// sourceOf is the module that has a package, and its version.
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

// bundleImage is an image of a bundle. Its version is its tag.
func bundleImage(i image, kubernetes string) bundleRow {
	_, tag, _ := strings.Cut(i.name, ":")
	of := cmp.Or(i.of, "the components of Kubernetes "+kubernetes)
	row := bundleRow{i.name, "image", tag, "made of " + of + " by the project's lab", license, imagesArchive}
	if i.debian != "" {
		row.License += " AND " + i.debian
	}
	return row
}
