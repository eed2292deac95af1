// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package breakages

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
)

type StaticPod struct {
	Where string     // for people: /etc/kubernetes/manifests/dns.yaml on cp-1
	Pod   corev1.Pod // with the name of its node
	// Reported is set if a worker's kubelet reports it to the API: it may say anything, and matters only to that worker's upgrade.
	Reported bool
}

// staticPods finds static Pods that refer to API objects. The kubelet 1.37 never starts them; before, only with feature gate
// PreventStaticPodAPIReferences off (#140226).
func (c *checker) staticPods() {
	if !c.reaches("1.37") {
		return
	}
	for _, p := range c.StaticPods {
		object := apiReference(p.Pod.Spec)
		if object == "" || c.passed(p.Pod.Spec.NodeName) {
			continue
		}
		f := fault.Finding{Name: "static-pod-api-reference", Severity: fault.Error, Subject: p.Where, Field: object,
			Message: fmt.Sprintf("%s: the kubelet 1.37 does not start this static Pod, because it refers to a %s", p.Where, object),
			Remedy:  "put the needed values into the manifest or into files of the node, or run it as a DaemonSet"}
		if p.Reported {
			f.Severity = fault.Warning
		}
		c.add(f)
	}
}

// apiReference returns the kind of an API object that a Pod needs; empty if it needs none.
func apiReference(spec corev1.PodSpec) string {
	switch {
	case spec.ServiceAccountName != "":
		return "ServiceAccount"
	case len(spec.ImagePullSecrets) > 0:
		return "Secret"
	case len(spec.ResourceClaims) > 0:
		return "ResourceClaim"
	}
	for _, v := range spec.Volumes {
		if kind := volumeReference(v); kind != "" {
			return kind
		}
	}
	for _, container := range containersOf(spec) {
		for _, from := range container.EnvFrom {
			if from.ConfigMapRef != nil {
				return "ConfigMap"
			}
			if from.SecretRef != nil {
				return "Secret"
			}
		}
		for _, env := range container.Env {
			if env.ValueFrom != nil && env.ValueFrom.ConfigMapKeyRef != nil {
				return "ConfigMap"
			}
			if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
				return "Secret"
			}
		}
	}
	return ""
}

// containersOf returns all of a Pod's containers, including init and debugging containers.
func containersOf(spec corev1.PodSpec) []corev1.Container {
	list := append(append([]corev1.Container{}, spec.InitContainers...), spec.Containers...)
	for _, e := range spec.EphemeralContainers {
		list = append(list, corev1.Container(e.EphemeralContainerCommon))
	}
	return list
}

func hasSecretRef(v corev1.Volume) bool {
	return v.CephFS != nil && v.CephFS.SecretRef != nil || v.Cinder != nil && v.Cinder.SecretRef != nil ||
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil || v.ISCSI != nil && v.ISCSI.SecretRef != nil ||
		v.RBD != nil && v.RBD.SecretRef != nil || v.ScaleIO != nil && v.ScaleIO.SecretRef != nil ||
		v.StorageOS != nil && v.StorageOS.SecretRef != nil
}

func volumeReference(v corev1.Volume) string {
	switch {
	case v.ConfigMap != nil:
		return "ConfigMap"
	case v.Secret != nil || v.AzureFile != nil || hasSecretRef(v):
		return "Secret"
	case v.PersistentVolumeClaim != nil || v.Ephemeral != nil:
		return "PersistentVolumeClaim"
	case v.CSI != nil:
		return "CSIDriver"
	case v.Glusterfs != nil:
		return "Endpoints"
	case v.Projected == nil:
		return ""
	}
	for _, source := range v.Projected.Sources {
		switch {
		case source.ConfigMap != nil:
			return "ConfigMap"
		case source.Secret != nil:
			return "Secret"
		case source.ServiceAccountToken != nil:
			return "ServiceAccount"
		case source.ClusterTrustBundle != nil:
			return "ClusterTrustBundle"
		case source.PodCertificate != nil:
			return "PodCertificateRequest"
		}
	}
	return ""
}
