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

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// etcdHasNone asks etcd whether the cluster keeps no configuration, where its API server does not answer: a first init with a
// wrong flag of the API server leaves a healthy etcd. One without data keeps none. If neither can be seen, it is false.
func etcdHasNone(ctx context.Context, env *Env) bool {
	if !knowsEtcd(env) {
		return false
	}
	if !etcdHasData(env) {
		return true
	}
	found, err := hasKey(ctx, env, "configmaps", "kube-system", manifests.KubeadmConfigMap)
	return err == nil && !found
}

// knowsEtcd reports whether this configuration leads to the etcd in which the API server that is here keeps what it has. Another
// one would say that there is nothing.
func knowsEtcd(env *Env) bool {
	have, err := staticPodThere(env, manifests.APIServerName)
	if err != nil || have == nil {
		return err == nil
	}
	asked, err := staticPodYAML(env, manifests.APIServerName, manifests.HostView{}, nil)
	if err != nil || podFlag(have, "etcd-servers") != podFlag(asked, "etcd-servers") || podFlag(have, "etcd-servers-overrides") != "" {
		return false
	}
	if env.Config.Cluster.Etcd.Local == nil {
		return true
	}
	member, err := staticPodThere(env, manifests.EtcdName)
	return err == nil && member != nil
}

func staticPodThere(env *Env, component string) ([]byte, error) {
	return host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, component))
}

// etcdHasData is true for an external etcd, and for one whose directories cannot be read. They are those of its static Pod here
// and of this configuration.
func etcdHasData(env *Env) bool {
	if env.Config.Cluster.Etcd.Local == nil {
		return true
	}
	trees, _, err := etcdPlaces(env)
	return err != nil || slices.ContainsFunc(trees, func(dir string) bool {
		entries, err := env.Host.ReadDir(dir)
		return ignoreMissing(err) != nil || len(entries) > 0
	})
}

// hasKey asks etcd for an object of the API. Without its static Pod, a local one cannot be asked.
func hasKey(ctx context.Context, env *Env, object ...string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, etcdmember.APILimit+askTime)
	defer cancel()
	if _, found := etcdmember.Local(env.Host, env.Config); !found && env.Config.Cluster.Etcd.Local != nil {
		return false, errors.New("etcd has no static Pod")
	}
	have, err := staticPodThere(env, manifests.APIServerName)
	if err != nil {
		return false, err
	}
	prefix := cmp.Or(podFlag(have, "etcd-prefix"), "registry")
	return env.Etcd.Has(ctx, path.Join(append([]string{"/", prefix}, object...)...))
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
	c := pod.Spec.Containers[0]
	for _, arg := range slices.Backward(slices.Concat(c.Command, c.Args)) {
		if value, found := strings.CutPrefix(arg, "--"+name+"="); found {
			return value
		}
	}
	return ""
}
