// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"slices"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/slipway-k8s/slipway/internal/config"
)

const clusterInfoName = tokenapi.ConfigMapClusterInfo

// ClusterInfo publishes the cluster's address and CA in a kubeconfig file without users. BootstrapRBAC decides who may read it.
func ClusterInfo(kubeconfig []byte) *corev1.ConfigMap {
	return configMap(metav1.NamespacePublic, clusterInfoName, map[string]string{tokenapi.KubeConfigKey: string(kubeconfig)})
}

// SignClusterInfo adds to cm its kubeconfig's signature with each token that may sign, and reports whether that changed it. Other
// tokens' signatures stay. The controller manager makes the same bytes, so it leaves them alone:
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/#configmap-signing
func SignClusterInfo(cm *corev1.ConfigMap, tokens []config.Token) (changed bool, err error) {
	content, ok := cm.Data[tokenapi.KubeConfigKey]
	if !ok {
		return false, nil // nothing to sign
	}
	for _, t := range tokens {
		if !TokenSigns(t) {
			continue
		}
		signature, err := jws.ComputeDetachedSignature(content, t.ID, t.Secret.Reveal())
		if err != nil {
			return false, errors.Errorf("token %s cannot sign", t.ID) // the cause may quote the secret
		}
		if key := tokenapi.JWSSignatureKeyPrefix + t.ID; cm.Data[key] != signature {
			cm.Data[key], changed = signature, true
		}
	}
	return changed, nil
}

// TokenSigns reports whether a token is for signing cluster-info.
func TokenSigns(t config.Token) bool {
	return slices.ContainsFunc(t.Usages, func(usage string) bool {
		return tokenapi.BootstrapTokenUsagePrefix+usage == tokenapi.BootstrapTokenUsageSigningKey
	})
}
