// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

func bootstrapToken() Phase {
	return Phase{
		Name:    "bootstrap-token",
		Summary: "Create the bootstrap tokens and the permissions that nodes need to join",
		Flags:   []string{"config", "dry-run", "kubeconfig", "skip-token-print"},
		Run:     runBootstrapToken,
	}
}

// runBootstrapToken writes everything that a joining node needs from the API:
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
func runBootstrapToken(ctx context.Context, env *Env) error {
	tokens, err := planTokens(ctx, env)
	if err != nil {
		return err
	}
	ca, err := clusterCA(env)
	if err != nil {
		return err
	}
	kubeconfig, err := kubeconfig.ClusterInfo("https://"+env.Config.Endpoint(), ca.Bundle())
	if err != nil {
		return err
	}
	info := manifests.ClusterInfo(kubeconfig)
	rbac := manifests.BootstrapRBAC(env.Config)
	env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
	if !env.Again {
		if _, err := manifests.SignClusterInfo(info, tokens.signers); err != nil {
			return err
		}
		return env.keeper().Ensure(ctx, slices.Concat(tokens.missing, []manifests.Object{info}, rbac)...)
	}
	if err := env.keeper().Ensure(ctx, tokens.missing...); err != nil {
		return err
	}
	if err := env.keeper().EnsureMissing(ctx, "init phase bootstrap-token", slices.Concat([]manifests.Object{info}, rbac)...); err != nil {
		return err
	}
	_, err = signClusterInfo(ctx, env, tokens.signers)
	return err
}

// clusterCA reads the CA that the whole cluster trusts.
func clusterCA(env *Env) (certs.Pair, error) { return env.pki().CA(certs.CA) }

// signClusterInfo signs the ConfigMap cluster-info, as it is in the API, with tokens. The controller manager does this,
// too, but only seconds after it has its lease, and new nodes would wait for it. found is false where the ConfigMap is
// missing.
func signClusterInfo(ctx context.Context, env *Env, tokens []config.Token) (found bool, err error) {
	info := manifests.ClusterInfo(nil)
	return env.Cluster.Update(ctx, info, func() (bool, error) { return manifests.SignClusterInfo(info, tokens) })
}

// tokenPlan is what the bootstrap-token phase does about tokens: it creates the Secrets that are missing, and signs
// with all tokens that may.
type tokenPlan struct {
	missing []manifests.Object
	signers []config.Token
}

// planTokens finds the tokens that the API lacks. One that is there with
// the same secret keeps its time, and one that an earlier run generated serves
// in place of a newly generated one: the same command again changes nothing.
func planTokens(ctx context.Context, env *Env) (tokenPlan, error) {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return tokenPlan{}, err
	}
	secrets, err := bootstrapTokenSecrets(ctx, env)
	if err != nil {
		return tokenPlan{}, err
	}
	plan := tokenPlan{signers: signers(secrets, env.Host.Now())}
	for _, token := range env.Config.BootstrapTokens {
		if expires := token.Expires; !expires.IsZero() && env.Host.Now().After(expires) {
			env.UI.Warnf("bootstrap token %s was skipped because it expired at %s; `slipway token create --print-join-command` creates one that nodes can join with",
				token.ID, expires.UTC().Format(time.RFC3339))
			continue
		}
		if usable := usableToken(env, secrets, token); usable.ID != "" {
			env.UI.Printf("Bootstrap token %s already exists", usable.ID)
			continue
		}
		env.UI.Printf("Creating bootstrap token %s", token.ID)
		plan.missing = append(plan.missing, manifests.BootstrapTokenSecret(token, env.Host.Now()))
		replaced := func(t config.Token) bool { return t.ID == token.ID }
		plan.signers = append(slices.DeleteFunc(plan.signers, replaced), token)
	}
	return plan, nil
}

func bootstrapTokenSecrets(ctx context.Context, env *Env) ([]corev1.Secret, error) {
	return env.Cluster.Secrets(ctx, metav1.NamespaceSystem, "type="+string(corev1.SecretTypeBootstrapToken))
}

// signers are the tokens that the controller manager signs with at a moment: those with a valid Secret under their own
// name that have not expired.
func signers(secrets []corev1.Secret, at time.Time) []config.Token {
	var list []config.Token
	for _, s := range secrets {
		token, err := manifests.TokenOf(s.Data)
		named := s.Name == tokenapi.BootstrapTokenSecretPrefix+token.ID
		if err == nil && named && s.DeletionTimestamp == nil && (token.Expires.IsZero() || token.Expires.After(at)) {
			list = append(list, token)
		}
	}
	return list
}

// enoughLife is how much longer a token of an earlier run must be valid to be
// worth printing in a join command: an hour, or half of the lifetime asked for.
// A token with a fixed expiration time is good until then.
func enoughLife(token config.Token) time.Duration {
	if !token.Expires.IsZero() {
		return 0
	}
	return min(time.Hour, token.TTL/2)
}

// usableToken returns the token among secrets that does what token asks for, or
// the zero Token.
func usableToken(env *Env, secrets []corev1.Secret, token config.Token) config.Token {
	for _, s := range secrets {
		if found, ok := servingToken(env, s, token); ok {
			return found
		}
	}
	return config.Token{}
}

// servingToken is the token of a Secret, if it does what token asks for.
func servingToken(env *Env, s corev1.Secret, token config.Token) (found config.Token, ok bool) {
	found = config.Token{ID: string(s.Data[tokenapi.BootstrapTokenIDKey]),
		Secret: config.NewSecret(string(s.Data[tokenapi.BootstrapTokenSecretKey]))}
	same := found.ID == token.ID && found.Secret == token.Secret
	generated := token.Generated && string(s.Data[tokenapi.BootstrapTokenDescriptionKey]) == token.Description
	return found, (same || generated) && manifests.TokenServes(s.Data, token, env.Host.Now().Add(enoughLife(token)))
}

// joinToken is the token that the join command names: the first that the
// configuration asks for, as it is in the API. It is read by name first, because
// a list waits until the API server's cache has caught up with what was just
// written. A token that nobody can join with is named with a warning.
func joinToken(ctx context.Context, env *Env) (config.Token, error) {
	if len(env.Config.BootstrapTokens) == 0 {
		return config.Token{}, errors.New("the configuration has no bootstrap token, so there is no join command to show")
	}
	token := env.Config.BootstrapTokens[0]
	secret := manifests.BootstrapTokenSecret(token, env.Host.Now())
	found, err := env.Cluster.Get(ctx, secret)
	if err != nil {
		return config.Token{}, err
	}
	if found {
		if own, ok := servingToken(env, *secret, token); ok {
			return own, nil
		}
	}
	secrets, err := bootstrapTokenSecrets(ctx, env)
	if err != nil {
		return config.Token{}, err
	}
	if usable := usableToken(env, secrets, token); usable.ID != "" {
		return usable, nil
	}
	env.UI.Warnf("bootstrap token %s is missing from the cluster or can no longer be used to join, so the join command will fail; "+
		"`slipway token create --print-join-command` creates one that nodes can join with", token.ID)
	return token, nil
}
