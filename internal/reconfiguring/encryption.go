// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"context"

	"github.com/pkg/errors"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
)

// Encryption returns the change for the API servers to read config.EncryptionFile. It has no Fields if they're configured so
// already. An API server configured for another file is somebody else's: the change then keeps that file.
func (l Loader) Encryption(ctx context.Context) (*Change, []string, error) {
	document := map[string]any{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "ClusterConfiguration"}
	c, warnings, err := l.document(ctx, document)
	if err != nil {
		return nil, warnings, err
	}
	if now := &c.Node.Cluster; !now.HasEncryptionFile() && (now.EncryptedBy() == "" || now.EncryptedBy() == config.EncryptionFile) {
		args, volumes := now.WithEncryptionFile()
		document["apiServer"] = map[string]any{"extraArgs": args, "extraVolumes": volumes}
		return l.document(ctx, document)
	}
	return c, warnings, nil
}

func (l Loader) document(ctx context.Context, document map[string]any) (*Change, []string, error) {
	data, err := yaml.Marshal(document)
	if err != nil {
		return nil, nil, errors.WithStack(err)
	}
	parts, warnings, err := config.LoadParts(&config.Source{Name: "the flags of `slipway encryption`", Data: data})
	if err != nil {
		return nil, warnings, err
	}
	c, more, err := l.loadParts(ctx, parts)
	return c, append(warnings, more...), err
}
