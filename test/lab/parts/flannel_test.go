// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"strings"
	"testing"
)

func TestWithoutImports(t *testing.T) {
	const text = "import (\n\t_ \"example.org/a\"\n\t_ \"example.org/ab\"\n\tb \"example.org/b\"\n)\n"
	got, err := withoutImports(text, []string{"example.org/a"})
	if want := "import (\n\t_ \"example.org/ab\"\n\tb \"example.org/b\"\n)\n"; got != want || err != nil {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	for _, pkg := range []string{"example.org/b", "example.org/c"} {
		if _, err := withoutImports(text, []string{pkg}); err == nil {
			t.Errorf("%s was left out, but its import is not blank", pkg)
		}
	}
}

// The lab must leave packages only out of programs it builds.
func TestLeftOut(t *testing.T) {
	for _, p := range programs {
		for _, pkg := range leftOut[p.name] {
			if !strings.HasPrefix(pkg, p.pkg+"/") {
				t.Errorf("%s cannot be left out of %s", pkg, p.pkg)
			}
		}
	}
}

// The names and paths must match flannel's manifest.
func TestFlannelImages(t *testing.T) {
	b := testBuilder(t)
	images, err := b.table(b.releases[0].flannelImages(), tools{packet: []imageFile{{path: "usr/sbin/nft"}}, copy: []imageFile{{path: "usr/bin/cp"}}})
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ name, paths, license string }{
		{"ghcr.io/flannel-io/flannel:v0.28.10", "opt/bin/flanneld opt/bin/install-conf usr/sbin/nft", "Apache-2.0 AND GPL-2.0-or-later AND LGPL-2.1-or-later"},
		{"ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel3", "flannel usr/bin/cp",
			"Apache-2.0 AND GPL-3.0-or-later AND LGPL-2.1-or-later AND BSD-3-Clause"},
	}
	for i, image := range images {
		var paths []string
		for _, file := range image.files {
			paths = append(paths, file.path)
		}
		row := bundleImage(image, "v1.37.2")
		if got := strings.Join(paths, " "); image.name != want[i].name || got != want[i].paths || row.License != want[i].license {
			t.Errorf("got %s with %s under %s; want %v", image.name, got, row.License, want[i])
		}
		if _, tag, _ := strings.Cut(image.name, ":"); row.Version != tag || strings.Contains(row.Source, "Kubernetes") {
			t.Errorf("%s has the version %s and the source %q", image.name, row.Version, row.Source)
		}
	}
}

func TestBundleImage(t *testing.T) {
	got := bundleImage(image{name: "registry.k8s.io/kube-proxy:v1.37.2", debian: packetLicenses}, "v1.37.2")
	want := bundleRow{"registry.k8s.io/kube-proxy:v1.37.2", "image", "v1.37.2", "made of the components of Kubernetes v1.37.2 by the project's lab",
		"Apache-2.0 AND GPL-2.0-or-later AND LGPL-2.1-or-later", imagesArchive}
	if got != want {
		t.Errorf("got %v, want %v", got, want)
	}
}
