// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/test/lab/nodes"
)

// Lab makes machines like those of a cloud whose image has Slipway, a bundle and the link, and nothing else that Kubernetes needs.
type Lab struct {
	*nodes.Lab
	// Bundles are the files on this machine of the versions that the image exists for.
	Bundles map[string]string
}

const (
	seedDir  = "/var/lib/cloud/seed/nocloud"
	metaData = seedDir + "/meta-data" // written last, so a machine with it has everything
	// bundlePath is where the user-data expects the bundle.
	bundlePath = "/opt/slipway/bundle.tar"
	// kubeadmPath is the link by which Cluster API calls Slipway.
	kubeadmPath = "/usr/local/bin/kubeadm"
)

// Boot implements Machines.
func (l *Lab) Boot(ctx context.Context, name, version string, userData []byte) (string, error) {
	bundle := l.Bundles[version]
	if bundle == "" {
		return "", errors.Errorf("there is no image of Kubernetes %q", version)
	}
	node, err := l.StartNode(ctx, nodes.NodeSpec{Name: name, Bare: true})
	if err != nil {
		return "", err
	}
	if _, err := node.ReadFile(metaData); err == nil {
		return node.IP(), nil
	}
	if err := node.Kill(ctx); err != nil { // it has seen nothing of its image or its user-data yet
		return "", err
	}
	if err := errors.WithMessage(fill(node, bundle, userData), name); err != nil {
		return "", err
	}
	return node.IP(), node.Start(ctx)
}

// fill gives a stopped machine the image's contents and its user-data.
func fill(node *nodes.Node, bundle string, userData []byte) error {
	if err := node.InstallSlipway(); err != nil {
		return err
	}
	if err := node.CopyIn(bundle, bundlePath); err != nil {
		return err
	}
	err := node.Inside(func() error {
		if err := os.Symlink("slipway", kubeadmPath); !os.IsExist(err) {
			return err
		}
		return nil // by a boot that was interrupted
	})
	if err != nil {
		return err
	}
	if err := node.ConfigurePods(); err != nil {
		return err
	}
	if err := node.WriteFile(seedDir+"/user-data", userData, 0o600); err != nil {
		return err
	}
	return node.WriteFile(metaData, fmt.Appendf(nil, "instance-id: %s\nlocal-hostname: %[1]s\n", node.Name()), 0o644)
}

// Remove implements Machines.
func (l *Lab) Remove(ctx context.Context, name string) error {
	all, err := l.Nodes()
	if err != nil {
		return err
	}
	at := slices.IndexFunc(all, func(n *nodes.Node) bool { return n.Name() == name })
	if at < 0 {
		return nil
	}
	return all[at].Remove(ctx)
}
