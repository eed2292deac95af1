// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/config"
)

// configHashAnnotation marks a generated configuration of a component, so that an upgrade can generate it again. Its value is the
// SHA-256 of the data: https://kubernetes.io/docs/reference/labels-annotations-taints/#component-config-hash
const configHashAnnotation = "kubeadm.kubernetes.io/component-config.hash"

// The ConfigMaps of the cluster's configuration and of the components' settings, in namespace kube-system.
const (
	KubeadmConfigMap   = "kubeadm-config"
	KubeadmConfigKey   = "ClusterConfiguration"
	KubeletConfigMap   = "kubelet-config"
	KubeProxyConfigMap = KubeProxyName
)

// KubeadmConfig stores the ClusterConfiguration in a ConfigMap, the first object, and lets joining nodes read it.
func KubeadmConfig(n *config.Node) ([]Object, error) {
	data, err := n.KubeadmConfigYAML()
	if err != nil {
		return nil, err
	}
	cm := configMap(metav1.NamespaceSystem, KubeadmConfigMap, map[string]string{KubeadmConfigKey: string(data)})
	return append([]Object{cm}, readable(metav1.NamespaceSystem, "kubeadm:nodes-kubeadm-config",
		"configmaps", cm.Name, group(nodeTokenGroup), group(nodesGroup))...), nil
}

// KubeletConfig stores the KubeletConfiguration of all nodes, and lets them read it.
func KubeletConfig(n *config.Node) ([]Object, error) {
	data, err := n.KubeletYAML()
	if err != nil {
		return nil, err
	}
	cm := configMap(metav1.NamespaceSystem, KubeletConfigMap, map[string]string{"kubelet": string(data)})
	markGenerated(cm, n.KubeletGiven)
	return append([]Object{cm}, readable(metav1.NamespaceSystem, "kubeadm:kubelet-config",
		"configmaps", cm.Name, group(nodesGroup), group(nodeTokenGroup))...), nil
}

func configMap(namespace, name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Data:       data,
	}
}

// markGenerated annotates a component's configuration, unless it comes from the user.
func markGenerated(cm *corev1.ConfigMap, given bool) {
	if !given {
		MarkGenerated(cm)
	}
}

// MarkGenerated annotates a component's configuration as unedited.
func MarkGenerated(cm *corev1.ConfigMap) {
	metav1.SetMetaDataAnnotation(&cm.ObjectMeta, configHashAnnotation, ConfigHash(cm))
}

// Generated reports whether a component's configuration is still as init or an upgrade generated it.
func Generated(cm *corev1.ConfigMap) bool {
	return cm.Annotations[configHashAnnotation] == ConfigHash(cm)
}

// ConfigHash returns the hash that marks a component's configuration as generated.
func ConfigHash(cm *corev1.ConfigMap) string {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(cm.Data)) {
		hash.Write([]byte(cm.Data[key]))
	}
	return fmt.Sprintf("sha256:%x", hash.Sum(nil))
}
