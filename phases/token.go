// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

// CreateTokens creates the configuration's bootstrap tokens, and signs
// cluster-info with them, so that nodes can join at once. If the ID of any token
// is in use, that is an error and nothing is created.
func CreateTokens(ctx context.Context, env *Env) error {
	for _, token := range env.Config.BootstrapTokens {
		found, err := env.Cluster.Get(ctx, tokenSecret(token.ID))
		if err != nil {
			return err
		}
		if found {
			return errors.Errorf("a bootstrap token with the ID %q already exists; choose another ID, or delete the token first: `slipway token delete %s`",
				token.ID, token.ID)
		}
	}
	for _, token := range env.Config.BootstrapTokens {
		if err := env.Cluster.Ensure(ctx, manifests.BootstrapTokenSecret(token, env.Host.Now())); err != nil {
			return err
		}
	}
	signWithCreated(ctx, env)
	return nil
}

// signWithCreated only warns: the tokens are in the cluster and have to be
// printed, and the controller manager signs, too.
func signWithCreated(ctx context.Context, env *Env) {
	if !slices.ContainsFunc(env.Config.BootstrapTokens, manifests.TokenSigns) {
		return
	}
	found, err := signClusterInfo(ctx, env, env.Config.BootstrapTokens)
	switch {
	case err != nil:
		env.UI.Warnf("could not sign ConfigMap kube-public/cluster-info, so nodes can join only once the controller manager has signed it: %v", err)
	case !found:
		env.UI.Warnf("ConfigMap kube-public/cluster-info is missing, so nodes cannot use the new tokens for discovery; " +
			"`slipway init phase bootstrap-token` on a control plane creates it")
	}
}

// tokenSecret names the Secret of a token.
func tokenSecret(id string) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: tokenapi.BootstrapTokenSecretPrefix + id, Namespace: metav1.NamespaceSystem},
	}
}

// DeleteTokens deletes bootstrap tokens by ID, and says so for each. It
// continues after a missing one and returns an error at the end. Signatures in
// cluster-info are left to the controller manager: without its Secret a token
// is of no use to join.
func DeleteTokens(ctx context.Context, env *Env, ids []string) error {
	var missing []string
	for _, id := range ids {
		found, err := env.Cluster.Get(ctx, tokenSecret(id))
		switch {
		case err != nil:
			return err
		case !found:
			missing = append(missing, id)
			continue
		}
		if err := env.Cluster.EnsureAbsent(ctx, tokenSecret(id)); err != nil {
			return err
		}
		env.UI.Result("bootstrap token \"" + id + "\" deleted")
	}
	if len(missing) > 0 {
		return errors.Errorf("there is no bootstrap token with the ID %s; `slipway token list` lists those that exist",
			strings.Join(missing, ", "))
	}
	return nil
}

// ListTokens returns the cluster's bootstrap tokens, in order of their IDs,
// usages sorted.
func ListTokens(ctx context.Context, env *Env) ([]config.Token, error) {
	secrets, err := bootstrapTokenSecrets(ctx, env)
	if err != nil {
		return nil, err
	}
	var list []config.Token
	for _, s := range secrets {
		token, err := manifests.TokenOf(s.Data)
		if err != nil {
			env.UI.Warnf("Secret kube-system/%s is not a valid bootstrap token: %v", s.Name, err)
			continue
		}
		list = append(list, token)
	}
	slices.SortFunc(list, func(a, b config.Token) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// JoinCommand is what the administrator of a joining node types, on one line.
// Where the cluster is and which CA it has, it takes from where the joining
// node does, or else from the administrator's kubeconfig, which is read then. A
// certificate key makes the node a control plane.
func JoinCommand(ctx context.Context, env *Env, token config.Token, key config.Secret, read func() ([]byte, error)) (string, error) {
	endpoint, pins, err := clusterPins(ctx, env, read)
	if err != nil {
		return "", err
	}
	words := []string{joinCommand + endpoint, "--token", token.ID + "." + token.Secret.Reveal()}
	for _, pin := range pins {
		words = append(words, "--discovery-token-ca-cert-hash", pin)
	}
	if !key.IsZero() {
		words = append(words, "--control-plane", "--certificate-key", key.Reveal())
	}
	return strings.Join(words, " "), nil
}

func clusterPins(ctx context.Context, env *Env, read func() ([]byte, error)) (endpoint string, pins []string, err error) {
	data, source, err := clusterInfo(ctx, env, read)
	if err != nil {
		return "", nil, err
	}
	server, ca, err := kubeconfig.Server(data)
	if err != nil {
		return "", nil, errors.Wrap(err, source)
	}
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return "", nil, errors.Errorf("%s: the server is not a URL such as https://10.0.0.1:6443", source)
	}
	for _, cert := range ca {
		pins = append(pins, certs.PublicKeyPin(cert))
	}
	return u.Host, pins, nil
}

func clusterInfo(ctx context.Context, env *Env, read func() ([]byte, error)) (data []byte, source string, err error) {
	text, err := cluster.ConfigMapText(ctx, env.Cluster, metav1.NamespacePublic, "cluster-info", "kubeconfig")
	if err != nil {
		return nil, "", err
	}
	if text != "" {
		return []byte(text), "ConfigMap kube-public/cluster-info", nil
	}
	path := env.Config.Paths.AdminKubeconfig
	env.UI.Warnf("ConfigMap kube-public/cluster-info, which joining nodes ask for, is missing: "+
		"`slipway init phase bootstrap-token` makes it. The address is that of %s", path)
	data, err = read()
	return data, path, err
}

// UploadCerts does what the phase upload-certs does.
func UploadCerts(ctx context.Context, env *Env) error { return runUploadCerts(ctx, env) }
