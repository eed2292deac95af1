// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/encryption"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// RestoreLost is the workflow that makes this host's lost file again, from the keyring beside it, then does other phases, and waits for the
// API server; it's only those phases if the file isn't lost. It needs no API, which a single control plane hasn't got without the file.
func RestoreLost(env *step.Env, others []step.Phase) ([]step.Phase, error) {
	o, err := ownFile(env)
	if err != nil || !o.lost() {
		return others, err
	}
	return slices.Concat([]step.Phase{{Name: "restore-keys", Summary: "Restore the lost file with the keys from the keyring", Run: restoreAndStart}}, others,
		[]step.Phase{{Name: "await-api-server", Summary: "Wait until the API server is healthy with the restored file", Run: awaitRestored}}), nil
}

// restoreAndStart makes the kubelet forget its delay after a crash, of up to five minutes: only a restart does. To a wait that begins
// afterwards, the containers that ended without the file don't count.
func restoreAndStart(ctx context.Context, env *step.Env) error {
	restored, err := restoreLost(ctx, env)
	if err != nil || !restored || node.IsHealthy(ctx, env, manifests.APIServerName) {
		return err
	}
	env.UI.Printf("Restarting the kubelet, so that it starts %s without delay", manifests.APIServerName)
	return node.RestartKubelet(ctx, env)
}

func awaitRestored(ctx context.Context, env *step.Env) error {
	const failure = manifests.APIServerName + " did not become healthy with the restored file"
	err := env.Guard(ctx, &env.Config.Timeouts.UpgradeManifests, env.NodeTarget(), failure, func(ctx context.Context) error {
		return node.WaitComponent(ctx, env, manifests.APIServerName)
	})
	return fault.WithRemedy(err, "`slipway diagnose` says why; once it's healthy, run the same command again")
}

// lost is set if the API server needs the file, and somebody has removed it.
func (o localConfig) lost() bool { return o.data == nil && o.flagged == config.EncryptionFile }

func lostError() error {
	return fault.New(config.EncryptionFile+" is missing: this host's API server does not start without it",
		"run `slipway encryption enable` on this control plane, which restores it from "+keyringFile)
}

// restoreLost leaves a host without a keyring to phase `keys`, which gets the cluster's.
func restoreLost(ctx context.Context, env *step.Env) (restored bool, err error) {
	o, err := ownFile(env)
	if err != nil || !o.lost() {
		return false, err
	}
	seal, err := env.Host.ReadFile(filepath.Join(env.Config.Paths.PKI, certs.ServiceAccountKey))
	if err != nil {
		return false, errors.WithMessage(err, "the key that seals encryption keys")
	}
	ring, err := keysHere(env, seal)
	if err != nil || ring.Target == "" {
		return false, err
	}
	order := lostOrder(ctx, env, ring)
	data, err := fileFor(ring, order)
	if err != nil {
		return false, err
	}
	if err := writeOwn(env, data); err != nil {
		return false, err
	}
	env.UI.Printf("Restored the lost %s from %s: this API server writes Secrets with %s, and reads %s", config.EncryptionFile, keyringFile,
		order[0], strings.Join(order, ", "))
	return true, nil
}

// valuesTimeout is enough to read all Secrets. etcd may be down, too.
const valuesTimeout = time.Minute

// lostOrder is the lost file's order, if the API server still runs with it. Otherwise, the file reads as many keys as it may have. It
// writes with the target only if etcd has nothing else: then all API servers read that, and none has dropped it. The next look at the
// API servers corrects the rest.
func lostOrder(ctx context.Context, env *step.Env, ring encryption.Keyring) encryption.Order {
	limited, cancel := context.WithTimeout(ctx, node.ReachTimeout)
	defer cancel()
	if hash, err := loaded(limited, env, env.Config.LocalEndpoint()); err == nil {
		if order, found := ring.Find(hash); found {
			return order
		}
	}
	order := encryption.Only(ring.Target)
	limited, cancelValues := context.WithTimeout(ctx, valuesTimeout)
	defer cancelValues()
	v, err := readValues(limited, env, ring.Target)
	if err != nil || v.check() != nil || len(v.others) > 0 {
		order = encryption.Only(encryption.Identity).Reading(ring.Target)
	}
	names := slices.Sorted(maps.Keys(v.needs))
	for _, k := range slices.Backward(ring.Keys) {
		names = append(names, k.Name)
	}
	for _, name := range names {
		if _, found := ring.Key(name); found && ring.Findable(order.Reading(name)) {
			order = order.Reading(name)
		}
	}
	return order
}
