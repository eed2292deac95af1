// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// kubeletEdits are the fields of this host's config.yaml that somebody has set there, and that the upgrade writes with
// other values: those that are neither the cluster's nor the node's own (instance-config.yaml).
func kubeletEdits(ctx context.Context, env *Env) (map[string]any, error) {
	stored, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespaceSystem, manifests.KubeletConfigMap, "kubelet")
	if err != nil || stored == "" {
		return nil, err
	}
	wanted, err := nextKubeletConfig(env)
	if err != nil {
		return nil, err
	}
	docs := make([]map[string]any, 4)
	for i, read := range []func() ([]byte, error){
		func() ([]byte, error) { return readKubeletFile(env, "config.yaml") },
		func() ([]byte, error) { return readKubeletFile(env, "instance-config.yaml") },
		func() ([]byte, error) { return []byte(stored), nil },
		func() ([]byte, error) { return wanted, nil },
	} {
		data, err := read()
		if err == nil {
			err = yaml.Unmarshal(data, &docs[i])
		}
		if err != nil {
			return nil, errors.WithMessage(err, "the kubelet's configuration")
		}
	}
	lost := map[string]any{}
	for name, value := range docs[0] {
		ours := name == "resolvConf" && value == config.ResolvedConf // systemd-resolved ran here
		if !ours && !slices.ContainsFunc(docs[1:], func(other map[string]any) bool { return reflect.DeepEqual(other[name], value) }) {
			lost[name] = value
		}
	}
	return lost, nil
}

func readKubeletFile(env *Env, name string) ([]byte, error) {
	return host.ReadIfExists(env.Host, filepath.Join(env.Config.Paths.Kubelet, name))
}
