// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/jws"

	"github.com/slipway-k8s/slipway/internal/config"
)

// BootstrapRBAC lets nodes that join with a bootstrap token read Nodes and cluster-info and get a client certificate, and lets
// nodes renew that certificate later. It also lets the API server use the kubelets' API.
func BootstrapRBAC(*config.Node) []Object {
	const signing = "system:certificates.k8s.io:certificatesigningrequests:"
	objs := []Object{
		clusterRole("kubeadm:get-nodes", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get"}}),
		clusterBinding("kubeadm:get-nodes", "kubeadm:get-nodes", group(nodeTokenGroup)),
		clusterBinding("kubeadm:kubelet-bootstrap", "system:node-bootstrapper", group(nodeTokenGroup)),
		clusterBinding("kubeadm:node-autoapprove-bootstrap", signing+"nodeclient", group(nodeTokenGroup)),
		clusterBinding("kubeadm:node-autoapprove-certificate-rotation", signing+"selfnodeclient", group(nodesGroup)),
		KubeletAPIAdmin(),
	}
	return append(objs, readable(metav1.NamespacePublic, "kubeadm:bootstrap-signer-clusterinfo",
		"configmaps", ClusterInfoName, user(anonymousUser))...)
}

// BootstrapTokenSecret returns a bootstrap token's Secret. It expires at t.Expires, or else t.TTL after now; without either,
// never: https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
func BootstrapTokenSecret(t config.Token, now time.Time) *corev1.Secret {
	data := map[string][]byte{
		tokenapi.BootstrapTokenIDKey:     []byte(t.ID),
		tokenapi.BootstrapTokenSecretKey: []byte(t.Secret.Reveal()),
	}
	if t.Description != "" {
		data[tokenapi.BootstrapTokenDescriptionKey] = []byte(t.Description)
	}
	expires := t.Expires
	if expires.IsZero() && t.TTL > 0 {
		expires = now.Add(t.TTL)
	}
	if !expires.IsZero() {
		data[tokenapi.BootstrapTokenExpirationKey] = []byte(expires.UTC().Format(time.RFC3339))
	}
	for _, usage := range t.Usages {
		data[tokenapi.BootstrapTokenUsagePrefix+usage] = []byte("true")
	}
	if len(t.Groups) > 0 {
		data[tokenapi.BootstrapTokenExtraGroupsKey] = []byte(strings.Join(t.Groups, ","))
	}
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: tokenapi.BootstrapTokenSecretPrefix + t.ID, Namespace: metav1.NamespaceSystem},
		Type:       corev1.SecretTypeBootstrapToken,
		Data:       data,
	}
}

// TokenOf returns the token in a Secret's data, with sorted usages and groups. Errors don't quote the secret.
func TokenOf(data map[string][]byte) (config.Token, error) {
	t := config.Token{
		ID:          string(data[tokenapi.BootstrapTokenIDKey]),
		Secret:      config.NewSecret(string(data[tokenapi.BootstrapTokenSecretKey])),
		Description: string(data[tokenapi.BootstrapTokenDescriptionKey]),
	}
	if !config.IsToken(t.ID + "." + t.Secret.Reveal()) {
		return t, errors.Errorf("its %s and %s are not a valid token", tokenapi.BootstrapTokenIDKey, tokenapi.BootstrapTokenSecretKey)
	}
	if text := string(data[tokenapi.BootstrapTokenExpirationKey]); text != "" {
		var err error
		if t.Expires, err = time.Parse(time.RFC3339, text); err != nil {
			return t, errors.Errorf("its %s is not a valid time (expected something like 2030-01-31T12:00:00Z)", tokenapi.BootstrapTokenExpirationKey)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if usage, ok := strings.CutPrefix(key, tokenapi.BootstrapTokenUsagePrefix); ok && string(data[key]) == "true" {
			t.Usages = append(t.Usages, usage)
		}
	}
	for group := range strings.SplitSeq(string(data[tokenapi.BootstrapTokenExtraGroupsKey]), ",") {
		if group != "" {
			t.Groups = append(t.Groups, group)
		}
	}
	slices.Sort(t.Groups)
	return t, nil
}

// TokenServes reports whether the API's token have is as good as t at the given time: it has all usages and groups, and hasn't
// expired. If t never expires, neither may have.
func TokenServes(have, t config.Token, at time.Time) bool {
	hasAll := func(have, wanted []string) bool {
		return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(have, w) })
	}
	forever := t.TTL == 0 && t.Expires.IsZero()
	return hasAll(have.Usages, t.Usages) && hasAll(have.Groups, t.Groups) &&
		(have.Expires.IsZero() || !forever && have.Expires.After(at))
}

// ClusterInfoName is the ConfigMap that joining nodes ask for.
const ClusterInfoName = tokenapi.ConfigMapClusterInfo

// ClusterInfo publishes the cluster's address and CA in a kubeconfig file without users. BootstrapRBAC decides who may read it.
func ClusterInfo(kubeconfig []byte) *corev1.ConfigMap {
	return configMap(metav1.NamespacePublic, ClusterInfoName, map[string]string{tokenapi.KubeConfigKey: string(kubeconfig)})
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
