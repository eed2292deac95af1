// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package tokens

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
)

const createAnother = "create one that nodes can join with: `slipway token create --print-join-command`"

// Missing returns the Secrets of the wanted tokens that the API lacks, and all tokens that may sign cluster-info once these
// exist. A token with the same secret keeps its lifetime, and an earlier run's generated token serves in place of a new token, so
// that running the same command again changes nothing. Expired tokens cause a warning.
func (s Store) Missing(ctx context.Context, wanted []config.Token) (missing []manifests.Object, sign []config.Token, err error) {
	secrets, err := s.secrets(ctx)
	if err != nil {
		return nil, nil, err
	}
	sign = signers(secrets, s.Now())
	for _, token := range wanted {
		if expires := token.Expires; !expires.IsZero() && s.Now().After(expires) {
			s.UI.Warn("bootstrap token "+token.ID+" was skipped because it expired at "+expires.UTC().Format(time.RFC3339), createAnother)
			continue
		}
		if usable := s.usable(secrets, token); usable.ID != "" {
			s.UI.Printf("Bootstrap token %s already exists", usable.ID)
			continue
		}
		s.UI.Printf("Creating bootstrap token %s", token.ID)
		missing = append(missing, manifests.BootstrapTokenSecret(token, s.Now()))
		replaced := func(t config.Token) bool { return t.ID == token.ID }
		sign = append(slices.DeleteFunc(sign, replaced), token)
	}
	return missing, sign, nil
}

// signers returns the tokens the controller manager signs with at a moment: unexpired, with a valid Secret under their own name.
func signers(secrets []corev1.Secret, at time.Time) []config.Token {
	var list []config.Token
	for _, secret := range secrets {
		token, err := manifests.TokenOf(secret.Data)
		named := secret.Name == tokenapi.BootstrapTokenSecretPrefix+token.ID
		if err == nil && named && secret.DeletionTimestamp == nil && (token.Expires.IsZero() || token.Expires.After(at)) {
			list = append(list, token)
		}
	}
	return list
}

// enoughLife is how much longer an earlier run's token must be valid for a join command: an hour, or half the requested lifetime.
// A token with a fixed expiration time is good until then.
func enoughLife(token config.Token) time.Duration {
	if !token.Expires.IsZero() {
		return 0
	}
	return min(time.Hour, token.TTL/2)
}

// usable returns the token among secrets that serves as token, or the zero Token.
func (s Store) usable(secrets []corev1.Secret, token config.Token) config.Token {
	for _, secret := range secrets {
		if found, ok := s.serving(secret, token); ok {
			return found
		}
	}
	return config.Token{}
}

// serving returns a Secret's token, if it serves as token.
func (s Store) serving(secret corev1.Secret, token config.Token) (found config.Token, ok bool) {
	found, err := manifests.TokenOf(secret.Data)
	same := found.ID == token.ID && found.Secret == token.Secret
	generated := token.Generated && found.Description == token.Description
	return found, err == nil && (same || generated) && manifests.TokenServes(found, token, s.Now().Add(enoughLife(token)))
}

// ToJoinWith returns the API's token that serves as token. It first reads by name, because a list waits until the API server's
// cache has caught up with recent writes. If nobody can join with token, it returns token with a warning.
func (s Store) ToJoinWith(ctx context.Context, token config.Token) (config.Token, error) {
	secret := manifests.BootstrapTokenSecret(token, s.Now())
	found, err := s.Cluster.Get(ctx, secret)
	if err != nil {
		return config.Token{}, err
	}
	if found {
		if own, ok := s.serving(*secret, token); ok {
			return own, nil
		}
	}
	secrets, err := s.secrets(ctx)
	if err != nil {
		return config.Token{}, err
	}
	if usable := s.usable(secrets, token); usable.ID != "" {
		return usable, nil
	}
	s.UI.Warn("bootstrap token "+token.ID+" is missing from the cluster or can no longer be used to join, so the join command will fail", createAnother)
	return token, nil
}
