// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
	"golang.org/x/sys/unix"

	"github.com/slipway-k8s/slipway/test/lab/internal/thread"
)

// kubernetesPackages are those of nodePackages that nobody installs without
// Kubernetes in mind. A bare machine has none of them.
var kubernetesPackages = []string{"runc", "conntrack", "ebtables", "socat", "ethtool"}

// bareLayers are the layers of a machine with an init system and nothing that
// Kubernetes needs, the topmost first.
func (b *builder) bareLayers(ctx context.Context, base string) ([]string, error) {
	machine, err := b.layer("machine", "laying out the files of bare machines", nil, content{"machine", machineLinks})
	if err != nil {
		return nil, err
	}
	name := stamp("bare", append([]string{base}, kubernetesPackages...)...)
	bare, err := b.part(name, "removing packages for bare machines", func(dir string) error { return b.purge(ctx, base, dir) })
	return []string{machine, bare, base}, err
}

// purge removes kubernetesPackages from a Debian in base, so that dir becomes the layer above it.
func (b *builder) purge(ctx context.Context, base, dir string) error {
	beside, err := os.MkdirTemp(b.dir, unfinished)
	if err != nil {
		return errors.Wrap(err, "cannot make a directory to mount in")
	}
	defer os.RemoveAll(beside)
	root, work := filepath.Join(beside, "root"), filepath.Join(beside, "work")
	for _, d := range []string{root, work} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return errors.Wrap(err, "cannot make a directory to mount in")
		}
	}
	return thread.Do(func() error {
		if err := thread.PrivateMounts(); err != nil {
			return err
		}
		options := "lowerdir=" + base + ",upperdir=" + dir + ",workdir=" + work
		if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
			return errors.Wrap(err, "cannot mount Debian")
		}
		_, err := output(ctx, "", nil, slices.Concat([]string{"chroot", root, "dpkg", "--purge"}, kubernetesPackages)...)
		return errors.WithMessage(err, "cannot remove packages")
	})
}
