// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package tokens manages bootstrap tokens. Store creates, lists and deletes them, signs cluster-info with them, and makes the
// join command (JoinCommand): https://kubernetes.io/docs/reference/access-authn-authz/bootstrap-tokens/
package tokens

import (
	"context"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	tokenapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// Store manages a cluster's bootstrap tokens.
type Store struct {
	Cluster cluster.Cluster
	UI      ui.UI
	// Now is the clock for expiring tokens.
	Now func() time.Time
}

// Create creates tokens and signs cluster-info, so that nodes can join at once. It creates nothing if an ID is in use.
func (s Store) Create(ctx context.Context, tokens []config.Token) error {
	for _, token := range tokens {
		found, err := s.Cluster.Get(ctx, secretOf(token.ID))
		if err != nil {
			return err
		}
		if found {
			return fault.New("a bootstrap token with the ID \""+token.ID+"\" already exists",
				"choose another ID, or delete the token first with `slipway token delete "+token.ID+"`")
		}
	}
	for _, token := range tokens {
		if err := s.Cluster.Ensure(ctx, manifests.BootstrapTokenSecret(token, s.Now())); err != nil {
			return err
		}
	}
	s.signWithCreated(ctx, tokens)
	return nil
}

// signWithCreated only warns: the tokens are in the cluster and must be printed, and the controller manager signs, too.
func (s Store) signWithCreated(ctx context.Context, tokens []config.Token) {
	if !slices.ContainsFunc(tokens, manifests.TokenSigns) {
		return
	}
	found, err := s.SignClusterInfo(ctx, tokens)
	switch {
	case err != nil:
		ui.WarnError(s.UI, errors.WithMessage(err, "could not sign ConfigMap kube-public/cluster-info, so nodes can join only once the controller manager has signed it"))
	case !found:
		s.UI.Warn("ConfigMap kube-public/cluster-info is missing, so nodes cannot use the new tokens for discovery",
			"create it with `slipway init phase bootstrap-token` on a control plane")
	}
}

// SignClusterInfo signs the ConfigMap cluster-info in the API with tokens. The controller manager would, too, but only seconds
// after it gets its lease, and new nodes would wait. found is false if the ConfigMap is missing. If it's immutable, it warns:
// nobody can sign it, but nodes can join in other ways.
func (s Store) SignClusterInfo(ctx context.Context, tokens []config.Token) (found bool, err error) {
	info := manifests.ClusterInfo(nil)
	var unsigned bool
	found, err = s.Cluster.Update(ctx, info, func() (bool, error) {
		changed, err := manifests.SignClusterInfo(info, tokens)
		unsigned = changed && ptr.Deref(info.Immutable, false)
		return changed && !unsigned, err
	})
	if unsigned {
		s.UI.Warn("ConfigMap kube-public/cluster-info is immutable, so it cannot be signed, and nodes cannot use all of the tokens for discovery",
			"let nodes join with --discovery-file, or delete this ConfigMap and run `slipway init phase bootstrap-token` on a control plane, which creates it again")
	}
	return found, err
}

func secretOf(id string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: tokenapi.BootstrapTokenSecretPrefix + id, Namespace: metav1.NamespaceSystem}}
}

// Delete deletes tokens by ID, and prints a result for each. A missing token is an error, but only at the end. Signatures in
// cluster-info stay for the controller manager: without its Secret, a token is useless.
func (s Store) Delete(ctx context.Context, ids []string) error {
	var missing []string
	for _, id := range ids {
		found, err := s.Cluster.Get(ctx, secretOf(id))
		switch {
		case err != nil:
			return err
		case !found:
			missing = append(missing, id)
			continue
		}
		if err := s.Cluster.EnsureAbsent(ctx, secretOf(id)); err != nil {
			return err
		}
		s.UI.Result("bootstrap token \"" + id + "\" deleted")
	}
	if len(missing) > 0 {
		return fault.New("there is no bootstrap token with the ID "+strings.Join(missing, ", "), "run `slipway token list` to see the existing ones")
	}
	return nil
}

// List returns the cluster's tokens sorted by ID, with sorted usages. It warns of Secrets that aren't valid tokens.
func (s Store) List(ctx context.Context) ([]config.Token, error) {
	secrets, err := s.secrets(ctx)
	if err != nil {
		return nil, err
	}
	var list []config.Token
	for _, secret := range secrets {
		token, err := manifests.TokenOf(secret.Data)
		if err != nil {
			ui.WarnError(s.UI, errors.WithMessagef(err, "Secret kube-system/%s is not a valid bootstrap token", secret.Name))
			continue
		}
		list = append(list, token)
	}
	sort.SliceStable(list, func(i, j int) bool { return list[i].ID < list[j].ID })
	return list, nil
}

func (s Store) secrets(ctx context.Context) ([]corev1.Secret, error) {
	return s.Cluster.Secrets(ctx, metav1.NamespaceSystem, "type="+string(corev1.SecretTypeBootstrapToken))
}
