// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
)

// StoredConfiguration returns the ClusterConfiguration that the cluster keeps,
// as YAML.
func StoredConfiguration(ctx context.Context, c cluster.Cluster) ([]byte, error) {
	text, err := configMapText(ctx, c, metav1.NamespaceSystem, "kubeadm-config", "ClusterConfiguration")
	if err != nil {
		return nil, err
	}
	if text == "" {
		return nil, errors.Errorf("%s does not exist or has no ClusterConfiguration; `slipway init phase upload-config` makes it", config.ClusterSource)
	}
	return []byte(text), nil
}

// configMapText returns what a ConfigMap has under a key, empty where either is
// missing.
func configMapText(ctx context.Context, c cluster.Cluster, namespace, name, key string) (string, error) {
	cm := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
	}
	if found, err := c.Get(ctx, cm); err != nil || !found {
		return "", err
	}
	return cm.Data[key], nil
}

// ThisNode is what this host's files say of it as a control plane node: the
// name and the runtime that its kubelet has, and the address of its API server.
// What they do not say stays open, for the defaults.
func ThisNode(h host.Host) *config.JoinConfiguration {
	n := &config.JoinConfiguration{ControlPlane: &config.JoinControlPlane{}}
	n.NodeRegistration.Name = kubeletName(h)
	n.NodeRegistration.CRISocket = KubeletSocket(h)
	n.ControlPlane.LocalAPIEndpoint = advertised(h)
	return n
}

// apiServerManifest is where a control plane has the static Pod of its API
// server.
var apiServerManifest = filepath.Join(config.DefaultKubernetesDir, "manifests", manifests.APIServerName+".yaml")

// IsControlPlane reports whether this host has an API server, or has begun to
// have one.
func IsControlPlane(h host.Host) bool {
	_, err := h.Lstat(apiServerManifest)
	return err == nil
}

// readPod reads a static Pod. One that is missing, cannot be read or is broken
// is not found.
func readPod(h host.Host, path string) (pod *corev1.Pod, found bool) {
	data, err := h.ReadFile(path)
	if err != nil || yaml.Unmarshal(data, &pod) != nil || pod == nil {
		return nil, false
	}
	return pod, true
}

// KubeletSocket is the socket of the runtime that the kubelet on this host
// uses, empty where nothing says it. Its flags count for more than its
// instance's configuration, and that for more than the cluster's.
func KubeletSocket(h host.Host) string {
	return cmp.Or(socketInFlags(h), socketIn(h, "instance-config.yaml"), socketIn(h, "config.yaml"))
}

// socketIn reads a KubeletConfiguration; empty where it is missing or broken.
func socketIn(h host.Host, file string) string {
	data, err := h.ReadFile(filepath.Join(config.DefaultKubeletDir, file))
	if err != nil {
		return ""
	}
	var cfg struct {
		ContainerRuntimeEndpoint string `json:"containerRuntimeEndpoint"`
	}
	if err := yaml.Unmarshal(data, &cfg); err != nil {
		return ""
	}
	return cfg.ContainerRuntimeEndpoint
}

// socketInFlags reads the flag that nodes have which kubeadm up to 1.35 made.
func socketInFlags(h host.Host) string {
	socket := ""
	for _, flag := range flagsOnHost(h, config.DefaultKubeletDir) {
		if flag.Name == "container-runtime-endpoint" {
			socket = flag.Value
		}
	}
	return socket
}

// flagsOnHost are the kubelet's flags as kubeadm-flags.env in its directory has
// them, in order; none where it is missing. A value that holds a space or a
// quote is not told right.
func flagsOnHost(h host.Host, dir string) []config.Arg {
	data, err := h.ReadFile(filepath.Join(dir, "kubeadm-flags.env"))
	if err != nil {
		return nil
	}
	var flags []config.Arg
	for word := range strings.FieldsSeq(strings.NewReplacer(`"`, " ", "'", " ").Replace(string(data))) {
		if flag, found := strings.CutPrefix(word, "--"); found {
			name, value, _ := strings.Cut(flag, "=")
			flags = append(flags, config.Arg{Name: name, Value: value})
		}
	}
	return flags
}

// kubeletName reads the name from the certificate that the kubelet shows.
func kubeletName(h host.Host) string {
	path := filepath.Join(config.DefaultKubernetesDir, "kubelet.conf")
	data, err := h.ReadFile(path)
	if err != nil {
		return ""
	}
	leaf, err := (&kubeletFile{path: path, data: data}).certificate(h)
	if err != nil {
		return ""
	}
	return nodeOf(leaf)
}

// advertised reads the address from the API server's static Pod.
func advertised(h host.Host) config.APIEndpoint {
	pod, found := readPod(h, apiServerManifest)
	if !found {
		return config.APIEndpoint{}
	}
	address, text, err := net.SplitHostPort(pod.Annotations[manifests.AdvertiseAnnotation])
	if err != nil {
		return config.APIEndpoint{}
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return config.APIEndpoint{}
	}
	return config.APIEndpoint{AdvertiseAddress: address, BindPort: int32(port)}
}
