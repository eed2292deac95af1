// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

const pendingCheck = "PendingConfiguration"

// pending finds an earlier change of the cluster's configuration that this control plane hasn't got yet: this run would put both on
// trial, and couldn't say which one doesn't work.
func (r *Run) pending(ctx context.Context, env *step.Env) []fault.Finding {
	paths, err := pendingFiles(ctx, withCurrentConfig(env), r.Former)
	switch {
	case err != nil:
		return []fault.Finding{failedLook(err)}
	case len(paths) == 0:
		return nil
	}
	return []fault.Finding{fault.NewFinding(pendingCheck, fault.Error,
		"run `slipway reconfigure node` first; to put both changes on trial at once, use "+fault.Ignoring(pendingCheck),
		"the cluster's configuration was changed before, and this control plane does not run with that change yet: %s", strings.Join(paths, ", "))}
}

// withCurrentConfig is the environment with the configuration from before this change.
func withCurrentConfig(env *step.Env) *step.Env {
	present, upgrade := *env, *env.Config.Upgrade
	present.Config = upgrade.Before.With(func(n *config.Node) { n.Upgrade = &upgrade })
	return &present
}

// pendingFiles are this node's files that differ from the configuration in env and are older than its last change. Newer ones have
// an operator's edits.
func pendingFiles(ctx context.Context, env *step.Env, former []string) (paths []string, err error) {
	differing, err := differingFiles(env, former)
	if err != nil {
		return nil, err
	}
	for _, of := range []struct{ configMap, key string }{
		{manifests.KubeadmConfigMap, manifests.KubeadmConfigKey}, {manifests.KubeletConfigMap, "kubelet"},
	} {
		changed, err := edits.ConfigurationChanged(ctx, env, of.configMap, of.key)
		if err != nil {
			return nil, err
		}
		for _, path := range differing[of.configMap] {
			written, err := trial.WrittenAt(env, path)
			if err != nil {
				return nil, err
			}
			if written.Before(changed) {
				paths = append(paths, path)
			}
		}
	}
	return slices.Compact(paths), nil
}

// differingFiles are this node's files that differ from the configuration in env, by the ConfigMap they follow.
func differingFiles(env *step.Env, former []string) (map[string][]string, error) {
	var ofCluster, ofKubelets []string
	rows, err := lackingNames(env)
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		ofCluster = append(ofCluster, env.PKI().Files(row)[0])
	}
	files, err := retargetKubeconfigs(env, former)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		ofCluster = append(ofCluster, f.Path)
	}
	components, err := node.Replacements(env)
	if err != nil {
		return nil, err
	}
	for _, c := range components {
		if c.Before != nil && !manifests.SameStaticPod(c.Before, c.Wanted) {
			ofCluster = append(ofCluster, env.Config.Paths.StaticPod(c.Name))
		}
	}
	path := env.Config.Paths.KubeletConfig()
	have, err := host.ReadIfExists(env.Host, path)
	if err != nil {
		return nil, err
	}
	wanted, err := kubelet.NextConfig(env)
	if have != nil && !bytes.Equal(have, wanted) {
		ofKubelets = append(ofKubelets, path)
	}
	return map[string][]string{manifests.KubeadmConfigMap: ofCluster, manifests.KubeletConfigMap: ofKubelets}, err
}
