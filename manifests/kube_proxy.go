// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/config"
)

const (
	// KubeProxyName is the DaemonSet's name, and the label k8s-app of its Pods.
	KubeProxyName = "kube-proxy"
	kubeProxyDir  = "/var/lib/kube-proxy"
)

// KubeProxy returns the add-on. Joining nodes can read its ConfigMap. Patches of kubeproxydaemonset apply to its DaemonSet.
func KubeProxy(n *config.Node, patches config.PatchSet) ([]Object, error) {
	daemonSet, err := patched(kubeProxyDaemonSet(n), &appsv1.DaemonSet{}, patches, config.PatchKubeProxy)
	if err != nil {
		return nil, err
	}
	data, err := n.KubeProxyYAML()
	if err != nil {
		return nil, err
	}
	cm := configMap(metav1.NamespaceSystem, KubeProxyName, map[string]string{
		"config.conf":     strings.TrimSpace(string(data)),
		"kubeconfig.conf": kubeProxyKubeconfig("https://" + n.Endpoint()),
	})
	cm.Labels = map[string]string{"app": KubeProxyName}
	markGenerated(cm, n.KubeProxyGiven)
	objs := []Object{
		serviceAccount(KubeProxyName),
		clusterBinding("kubeadm:node-proxier", "system:node-proxier", account(KubeProxyName)),
	}
	objs = append(objs, readable(metav1.NamespaceSystem, KubeProxyName, "configmaps", KubeProxyName, group(nodeTokenGroup))...)
	return append(objs, cm, daemonSet), nil
}

// kubeProxyKubeconfig authenticates kube-proxy with its service account.
func kubeProxyKubeconfig(server string) string {
	return `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: ` + server + `
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token`
}

func kubeProxyDaemonSet(n *config.Node) Object {
	labels := map[string]string{"k8s-app": KubeProxyName}
	meta := metav1.ObjectMeta{Name: KubeProxyName, Namespace: metav1.NamespaceSystem, Labels: labels}
	return nodeDaemonSet(meta, metav1.ObjectMeta{Labels: labels}, corev1.PodSpec{
		Containers:         []corev1.Container{kubeProxyContainer(n)},
		ServiceAccountName: KubeProxyName,
		Volumes: []corev1.Volume{
			configVolume(KubeProxyName, KubeProxyName),
			hostVolume("xtables-lock", "/run/xtables.lock", ptr.To(corev1.HostPathFileOrCreate)),
			hostVolume("lib-modules", "/lib/modules", nil),
		},
	})
}

// nodeDaemonSet returns a DaemonSet of critical Pods in the network of every Linux node. Labels of pod select them.
func nodeDaemonSet(meta, pod metav1.ObjectMeta, spec corev1.PodSpec) Object {
	spec.PriorityClassName = "system-node-critical"
	spec.HostNetwork = true
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux"}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: "DaemonSet"},
		ObjectMeta: meta,
		Spec: appsv1.DaemonSetSpec{
			Selector:       &metav1.LabelSelector{MatchLabels: pod.Labels},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.RollingUpdateDaemonSetStrategyType},
			Template:       corev1.PodTemplateSpec{ObjectMeta: pod, Spec: spec},
		},
	}
}

func kubeProxyContainer(n *config.Node) corev1.Container {
	return corev1.Container{
		Name:            KubeProxyName,
		Image:           n.Image(KubeProxyName),
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command: []string{
			"/usr/local/bin/kube-proxy",
			"--config=" + kubeProxyDir + "/config.conf",
			"--hostname-override=$(NODE_NAME)",
		},
		SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
		VolumeMounts: []corev1.VolumeMount{
			{Name: KubeProxyName, MountPath: kubeProxyDir},
			{Name: "xtables-lock", MountPath: "/run/xtables.lock"},
			{Name: "lib-modules", MountPath: "/lib/modules", ReadOnly: true},
		},
		Env: []corev1.EnvVar{{
			Name:      "NODE_NAME",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
		}},
	}
}
