// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Status is what the API servers have loaded, and what etcd holds.
type Status struct {
	// Target is the name of the key, or identity, that all Secrets are to have; empty if nobody has asked for any.
	Target string
	// Keys has the names of all keys, oldest first. A key that no API server reads any more was given up.
	Keys    []string
	Servers []encryption.Server
	// Secrets is the number of all values in etcd, and Others the number of values without the target's prefix.
	Secrets, Others int

	needs []string // the providers of those
}

// Settled reports whether nothing is left to do.
func (s *Status) Settled() bool {
	next, err := encryption.Next(s.Target, encryption.Only(s.Target), s.Servers, func() (encryption.Values, error) { return encryption.Values{Others: s.needs}, nil })
	return err == nil && next.Do == encryption.Done
}

// ReadStatus changes nothing. It warns of a file that this host lacks, or that's an earlier cluster's.
func ReadStatus(ctx context.Context, env *step.Env) (*Status, error) {
	o, err := ownFile(env)
	if err != nil {
		return nil, err
	}
	if o.lost() { // maybe without an API that answers
		ui.WarnError(env.UI, lostError())
	}
	ring, shared, err := readKeyring(ctx, env)
	if err != nil {
		return nil, err
	}
	if err := o.refuseLeftover(ring); err != nil {
		ui.WarnError(env.UI, err)
	}
	s := &Status{Target: ring.Target}
	for _, k := range ring.Keys {
		s.Keys = append(s.Keys, k.Name)
	}
	if s.Servers, err = servers(ctx, env, ring); err != nil || s.Target == "" {
		return s, err
	}
	v, err := readValues(ctx, env, ring.Target)
	if err == nil && shared {
		err = v.check()
	}
	s.Secrets, s.Others, s.needs = v.all, len(v.others), slices.Collect(maps.Keys(v.needs))
	return s, err
}

// readKeyring is gather, but completes nothing. shared is false if only this host has the keys.
func readKeyring(ctx context.Context, env *step.Env) (ring encryption.Keyring, shared bool, err error) {
	seal, err := env.Host.ReadFile(filepath.Join(env.Config.Paths.PKI, certs.ServiceAccountKey))
	if err != nil {
		return ring, false, errors.WithMessage(err, "the key that seals encryption keys")
	}
	here, err := keysHere(env, seal)
	if err != nil {
		return ring, false, err
	}
	secret := keyringSecret()
	found, err := env.Cluster.Get(ctx, secret)
	if err != nil || !found {
		return here, false, err
	}
	if ring, err = encryption.Open(secret.Data[encryption.KeyringKey], seal); err != nil {
		return ring, true, errors.WithMessage(err, "Secret kube-system/"+encryption.KeyringSecret)
	}
	ring, _, err = merged(ring, here)
	return ring, true, err
}
