// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/kubeconfig"
	"github.com/slipway-k8s/slipway/manifests"
)

func bootstrapToken() Phase {
	return Phase{
		Name:    "bootstrap-token",
		Summary: "Create the tokens and rights with which nodes join",
		Flags:   []string{"config", "dry-run", "kubeconfig", "skip-token-print"},
		Run:     runBootstrapToken,
	}
}

// runBootstrapToken writes everything that a joining node needs from the API:
// https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
func runBootstrapToken(ctx context.Context, env *Env) error {
	tokens, err := tokenSecrets(ctx, env)
	if err != nil {
		return err
	}
	ca, err := clusterCA(env)
	if err != nil {
		return err
	}
	info, err := kubeconfig.ClusterInfo("https://"+env.Config.Endpoint(), ca.Bundle())
	if err != nil {
		return err
	}
	objs := append([]manifests.Object{manifests.ClusterInfo(info)}, manifests.BootstrapRBAC(env.Config)...)
	env.UI.Printf("Allowing nodes to join with a bootstrap token, and to renew their certificates")
	if !env.Again {
		return env.keeper().Ensure(ctx, append(tokens, objs...)...)
	}
	if err := env.keeper().Ensure(ctx, tokens...); err != nil {
		return err
	}
	return env.keeper().EnsureMissing(ctx, "init phase bootstrap-token", objs...)
}

// clusterCA reads the CA that the whole cluster trusts.
func clusterCA(env *Env) (certs.Pair, error) { return env.pki().CA(certs.CA) }

// tokenSecrets returns the tokens that the API lacks. One that is there with
// the same secret keeps its time, and one that an earlier run generated serves
// in place of a newly generated one: the same command again changes nothing.
func tokenSecrets(ctx context.Context, env *Env) ([]manifests.Object, error) {
	if err := env.Cluster.EnsureAdmin(ctx); err != nil {
		return nil, err
	}
	var objs []manifests.Object
	for _, token := range env.Config.BootstrapTokens {
		if expires := token.Expires; !expires.IsZero() && env.Host.Now().After(expires) {
			env.UI.Warnf("bootstrap token %s is left out: it expired at %s; `slipway token create --print-join-command` makes one that nodes can join with",
				token.ID, expires.UTC().Format(time.RFC3339))
			continue
		}
		usable, err := usableToken(ctx, env, token)
		if err != nil {
			return nil, err
		}
		if usable.ID != "" {
			env.UI.Printf("Bootstrap token %s is there already", usable.ID)
			continue
		}
		env.UI.Printf("Creating bootstrap token %s", token.ID)
		objs = append(objs, manifests.BootstrapTokenSecret(token, env.Host.Now()))
	}
	return objs, nil
}

// enoughLife is how long a token of an earlier run must still live for it to
// be worth printing in a join command: an hour, or half of what is asked for.
// One that is told when to expire is good until then.
func enoughLife(token config.Token) time.Duration {
	if !token.Expires.IsZero() {
		return 0
	}
	return min(time.Hour, token.TTL/2)
}

// usableToken returns the token in the API that does what token asks for, or
// the zero Token.
func usableToken(ctx context.Context, env *Env, token config.Token) (config.Token, error) {
	secrets, err := env.Cluster.Secrets(ctx, "kube-system", "type="+string(corev1.SecretTypeBootstrapToken))
	if err != nil {
		return config.Token{}, err
	}
	for _, s := range secrets {
		if found, ok := servingToken(env, s, token); ok {
			return found, nil
		}
	}
	return config.Token{}, nil
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
// configuration asks for, as it is in the API. It is looked up by its name
// first, for a list waits until the API server's cache has caught up with what
// was just written. One that nobody can join with is named with a warning.
func joinToken(ctx context.Context, env *Env) (config.Token, error) {
	if len(env.Config.BootstrapTokens) == 0 {
		return config.Token{}, errors.New("the configuration names no bootstrap token, so there is no join command to show")
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
	usable, err := usableToken(ctx, env, token)
	if err != nil || usable.ID != "" {
		return usable, err
	}
	env.UI.Warnf("bootstrap token %s is not in the cluster, or no longer good for joining, so the join command fails with it; `slipway token create --print-join-command` makes one that nodes can join with",
		token.ID)
	return token, nil
}
