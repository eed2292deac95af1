// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/phases/step"
)

// Recall is the workflow that gives this host's API server earlier keys, to read with. It needs no API: a snapshot that needs them is
// restored on the worst day.
func Recall(names []string) []step.Phase {
	return []step.Phase{{Name: "recall", Summary: "Give the API server earlier keys to read with", Run: func(ctx context.Context, env *step.Env) error {
		return recall(ctx, env, names)
	}}}
}

func recall(ctx context.Context, env *step.Env, names []string) error {
	if err := restoreAndStart(ctx, env); err != nil {
		return err
	}
	seal, err := env.Host.ReadFile(filepath.Join(env.Config.Paths.PKI, certs.ServiceAccountKey))
	if err != nil {
		return errors.WithMessage(err, "the key that seals encryption keys")
	}
	ring, err := keysHere(env, seal)
	if err != nil {
		return err
	}
	o, err := ownFile(env)
	if err == nil {
		err = o.refuseLeftover(ring)
	}
	if err != nil {
		return err
	}
	if o.data == nil {
		return fault.New("this host has no "+config.EncryptionFile, "run this on a control plane on which `slipway encryption enable` has run")
	}
	for _, name := range names {
		if _, found := ring.Key(name); !found {
			return unknownKey(name, ring)
		}
		o.order = o.order.Reading(name)
	}
	data, err := fileFor(ring, o.order)
	if err != nil {
		return err
	}
	if err := writeOwn(env, data); err != nil {
		return err
	}
	env.UI.Nextf("The API server will be able to read Secrets written with %s within a minute, or once it starts", strings.Join(names, ", "))
	return nil
}

func unknownKey(name string, ring encryption.Keyring) error {
	var known []string
	for _, k := range ring.Keys {
		known = append(known, k.Name)
	}
	return fault.New(fmt.Sprintf("this host has no key %s, but %s", name, strings.Join(known, ", ")), "run this on another control plane, or name one of these")
}
