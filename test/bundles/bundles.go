// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package bundles makes bundles of the lab's parts that differ from those of `make bundle`.
package bundles

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// List reads the lab's list of a bundle's parts for a minor version of Kubernetes, empty for the newest. Its paths are absolute.
func List(ctx context.Context, lab *nodes.Lab, minor string) (*bundle.List, error) {
	dir, err := lab.BundleParts(ctx, minor)
	if err != nil {
		return nil, err
	}
	list, err := bundle.ReadList(dir)
	if err != nil {
		return nil, err
	}
	for i, part := range list.Parts {
		if !filepath.IsAbs(part.File) {
			list.Parts[i].File = filepath.Join(dir, part.File)
		}
	}
	return list, nil
}

// Older is the list for an older minor version of Kubernetes, with the newest etcd and CoreDNS: Slipway chooses their versions by
// its own.
func Older(ctx context.Context, lab *nodes.Lab, minor string) (*bundle.List, error) {
	list, err := List(ctx, lab, minor)
	if err != nil {
		return nil, err
	}
	newest, err := List(ctx, lab, "")
	if err != nil {
		return nil, err
	}
	others := func(p bundle.ListedPart) bool { return IsImage(p, "etcd") || IsImage(p, "coredns") }
	list.Parts = slices.DeleteFunc(list.Parts, others)
	for _, p := range newest.Parts {
		if others(p) {
			list.Parts = append(list.Parts, p)
		}
	}
	return list, nil
}

// IsImage reports whether a part is the image of that name, in whatever registry.
func IsImage(p bundle.ListedPart, name string) bool {
	image, _, _ := strings.Cut(p.Name, ":")
	return p.Type == bundle.Image && strings.HasSuffix(image, "/"+name)
}

// Create makes a bundle of a list's parts in a directory, with the program under test, and returns its path.
func Create(ctx context.Context, program string, list *bundle.List, dir string) (string, error) {
	data, err := yaml.Marshal(list)
	if err != nil {
		return "", err
	}
	from, into := filepath.Join(dir, bundle.ListName), filepath.Join(dir, "bundle.tar")
	if err := os.WriteFile(from, data, 0o600); err != nil {
		return "", err
	}
	said, err := exec.CommandContext(ctx, program, "bundle", "create", "--from", from, "-o", into).CombinedOutput()
	return into, errors.Wrapf(err, "bundle create: %s", said)
}
