// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"path/filepath"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/bundle"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/joining"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// skewChecks check the bundle's kubelet if it replaces another on a node. After an interrupted init, there's no API server to
// ask, and the node has the kubelet of the bundle to continue with.
func (p *Prepare) skewChecks(ctx context.Context, env *step.Env) []preflight.Check {
	if _, err := env.Host.Lstat(thisnode.KubeletConf(env.Config)); err != nil || !p.replacesKubelet(env) {
		return nil
	}
	if !p.Alone {
		return []preflight.Check{preflight.SameKubelet(p.Bundle.Index().KubernetesVersion)}
	}
	controlPlane, err := controlPlaneVersion(ctx, env)
	return []preflight.Check{preflight.BundledKubelet(p.Bundle.Index().KubernetesVersion, controlPlane, err)}
}

// replacesKubelet reports whether the bundle has a kubelet that differs from this host's.
func (p *Prepare) replacesKubelet(env *step.Env) bool {
	for _, part := range p.parts() {
		if part.Type == bundle.Program && part.Name == "kubelet" {
			f, _ := fileOf(part)
			same, err := env.Host.HasFile(f)
			return err != nil || !same
		}
	}
	return false
}

// controlPlaneVersion is the version of this node's API server or, on a worker, of the cluster's configuration: the control plane
// was upgraded to it first.
func controlPlaneVersion(ctx context.Context, env *step.Env) (string, error) {
	path := filepath.Join(env.Config.Paths.Manifests, manifests.APIServerName+".yaml")
	if data, err := env.Host.ReadFile(path); err == nil {
		version, err := upgrading.VersionOf(data)
		if err == nil && version == "" {
			err = errors.New("its image has no version")
		}
		return version, errors.WithMessage(err, path)
	}
	stored, err := joining.StoredConfiguration(ctx, env.Cluster)
	if err != nil {
		return "", err
	}
	return config.StoredVersion(stored)
}
