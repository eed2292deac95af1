// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"cmp"
	"context"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// etcdHasNone asks etcd whether the cluster keeps no configuration, where its API server does not answer: a first init with a
// wrong flag of the API server leaves a healthy etcd. One without data keeps none. If neither can be seen, it is false.
func etcdHasNone(ctx context.Context, env *Env) bool {
	if !etcdHasData(env) {
		return true
	}
	found, err := hasKey(ctx, env, "configmaps", "kube-system", manifests.KubeadmConfigMap)
	return err == nil && !found
}

// etcdHasData is true for an external etcd, and for one whose directory cannot be read.
func etcdHasData(env *Env) bool {
	local := env.Config.Cluster.Etcd.Local
	if local == nil {
		return true
	}
	entries, err := env.Host.ReadDir(filepath.Join(local.DataDir, "member"))
	return ignoreMissing(err) != nil || len(entries) > 0
}

// hasKey asks etcd for an object of the API.
func hasKey(ctx context.Context, env *Env, object ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdmember.APILimit+askTime)
	defer cancel()
	prefix, _ := config.LastArg(env.Config.Cluster.APIServer.ExtraArgs, "etcd-prefix")
	return env.Etcd.Has(ctx, path.Join(append([]string{cmp.Or(prefix, "/registry")}, object...)...))
}

// acceptReplaced makes the checks accept static Pods that an earlier init made and nobody has edited: this run replaces them,
// unless the cluster that has begun to exist cannot get this configuration any more.
func acceptReplaced(ctx context.Context, env *Env, wanted map[string][]byte) {
	for path, asked := range wanted {
		have, err := host.ReadIfExists(env.Host, path)
		component := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if err != nil || have == nil || bytes.Equal(have, asked) || !env.Host.Unchanged(path) || !preflight.IsStaticPod(component, have) {
			continue
		}
		if !tooLate(ctx, env, component, have, asked) {
			wanted[path] = have
		}
	}
}

// tooLate reports whether a component differs in what its data already has: the address of etcd's member, and the network that
// Services have their addresses of.
func tooLate(ctx context.Context, env *Env, component string, have, asked []byte) bool {
	switch component {
	case manifests.EtcdName:
		const peer = "initial-advertise-peer-urls"
		return podFlag(have, peer) != podFlag(asked, peer) && etcdHasData(env)
	case manifests.APIServerName:
		const network = "service-cluster-ip-range"
		if podFlag(have, network) == podFlag(asked, network) || !etcdHasData(env) {
			return false
		}
		found, err := hasKey(ctx, env, "services", "specs", "default", "kubernetes")
		return err != nil || found
	}
	return false
}

// podFlag returns the last value of a flag in a static Pod.
func podFlag(manifest []byte, name string) string {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	for _, arg := range slices.Backward(pod.Spec.Containers[0].Command) {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value
		}
	}
	return ""
}
