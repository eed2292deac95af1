// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// editedPod is a static Pod that an operator has changed.
type editedPod struct {
	component string
	have      []byte // the file
	before    []byte // what this configuration makes for the version that the node runs, without any patch
	wanted    []byte // what the upgrade writes
}

// editsOf returns what an operator has changed in the static Pod of a component, and what the upgrade would not keep; nil
// if there is nothing. It compares the file with what this configuration would have made for the version that the node
// runs: with the patches, which may be those of then, and without, as they may be new.
func editsOf(env *Env, component string, view manifests.HostView) (*editedPod, error) {
	path := thisnode.StaticPodPath(env.Config, component)
	have, err := host.ReadIfExists(env.Host, path)
	if err != nil || have == nil {
		return nil, err // the check StaticPodManifest reports it
	}
	members := membersOf(env, component)
	wanted, err := staticPodYAML(env, component, view, members)
	if err != nil || manifests.SameStaticPod(have, wanted) {
		return nil, err
	}
	before := asBefore(env)
	patched, err := staticPodYAML(before, component, view, members)
	if err != nil {
		return nil, err
	}
	plain, err := manifests.Encode(newStaticPod(before.Config, component, view, members))
	if err != nil {
		return nil, err
	}
	for _, made := range []*[]byte{&patched, &plain} {
		if *made, err = withTagOf(have, *made); err != nil {
			return nil, errors.Wrap(err, path)
		}
		if manifests.SameStaticPod(have, *made) {
			return nil, nil
		}
	}
	return &editedPod{component, have, plain, wanted}, nil
}

// String says what differs, in a line.
func (e *editedPod) String() string { return ownership.LineDifference(e.have, e.before) }

// asBefore is the environment with the version that this control plane runs.
func asBefore(env *Env) *Env {
	before, node := *env, *env.Config
	node.Cluster.KubernetesVersion = runningVersion(env)
	before.Config = &node
	return &before
}

// runningVersion is that of this node's API server, by its static Pod; by default that of the cluster's configuration.
func runningVersion(env *Env) string {
	pod, found := thisnode.StaticPod(env.Host, thisnode.StaticPodPath(env.Config, manifests.APIServerName))
	if found && len(pod.Spec.Containers) > 0 {
		if _, tag := splitImage(pod.Spec.Containers[0].Image); strings.HasPrefix(tag, "v") {
			return strings.ReplaceAll(tag, "_", "+")
		}
	}
	return env.Config.Upgrade.From
}

// withTagOf returns wanted with the image of have, if both are of the same repository: releases of kubeadm chose other
// versions of etcd for the same version of Kubernetes.
func withTagOf(have, wanted []byte) ([]byte, error) {
	var a, b corev1.Pod
	if err := yaml.Unmarshal(have, &a); err != nil {
		return nil, errors.WithStack(err)
	}
	if err := yaml.Unmarshal(wanted, &b); err != nil {
		return nil, errors.WithStack(err)
	}
	if len(a.Spec.Containers) == 0 || len(b.Spec.Containers) == 0 {
		return wanted, nil
	}
	mine, _ := splitImage(a.Spec.Containers[0].Image)
	ours, _ := splitImage(b.Spec.Containers[0].Image)
	if mine != ours {
		return wanted, nil
	}
	b.Spec.Containers[0].Image = a.Spec.Containers[0].Image
	return yaml.Marshal(&b)
}

// imageOf is the image of a static Pod's first container; empty for a manifest that is broken.
func imageOf(manifest []byte) string {
	var pod corev1.Pod
	if yaml.Unmarshal(manifest, &pod) != nil || len(pod.Spec.Containers) == 0 {
		return ""
	}
	return pod.Spec.Containers[0].Image
}

// splitImage separates the name of an image from its tag.
func splitImage(image string) (name, tag string) {
	if i := strings.LastIndex(image, ":"); i > strings.LastIndex(image, "/") {
		return image[:i], image[i+1:]
	}
	return image, ""
}

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
		if !slices.ContainsFunc(docs[1:], func(other map[string]any) bool { return reflect.DeepEqual(other[name], value) }) {
			lost[name] = value
		}
	}
	return lost, nil
}

func readKubeletFile(env *Env, name string) ([]byte, error) {
	return host.ReadIfExists(env.Host, filepath.Join(env.Config.Paths.Kubelet, name))
}
