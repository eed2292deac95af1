// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// RolledBackError is the error of a failed ReplaceStaticPods after which everything on this node runs again with the previous
// manifests.
type RolledBackError struct {
	error
	// Partly means that components which were replaced before stay replaced, so the node runs two versions.
	Partly bool
}

// Unwrap returns the error with both messages.
func (e *RolledBackError) Unwrap() error { return e.error }

// NewRolledBackError is a failure after which everything on this node runs as before it.
func NewRolledBackError(failed error) error {
	return &RolledBackError{error: errors.WithMessage(failed, "this node runs as before")}
}

// InGroups calls swap for the components that the API needs, and then for the API's own clients. If the second swap fails, the first
// components stay replaced, and a *RolledBackError says so.
func InGroups(components []Replacement, swap func([]Replacement) error) error {
	for i, group := range SplitAPIClients(components) {
		if err := swap(group); err != nil {
			if back := (*RolledBackError)(nil); errors.As(err, &back) {
				back.Partly = i > 0
			}
			return err
		}
	}
	return nil
}

// RollBack swaps the previous manifests in again after ReplaceStaticPods has failed. A component that an interrupted run had
// replaced isn't put back: that run's backup has its original. It returns failed with a report, a *RolledBackError if the previous
// manifests work.
func RollBack(ctx context.Context, env *step.Env, turn Lease, components []Replacement, failed error) error {
	var putBack []Replacement
	etcdStays := false
	for _, c := range components {
		now, replaced, err := wasReplaced(env, c)
		switch {
		case err != nil:
			return errors.WithMessagef(failed, "cannot tell which static Pods were replaced, so none was put back (%v)", err)
		case !replaced:
		case c.Name == manifests.EtcdName && !canRollBackEtcd(ctx, env, c):
			etcdStays = true
		default:
			c.Wanted, c.Before = c.Before, now
			putBack = append(putBack, c)
		}
	}
	if len(putBack) == 0 {
		return failed
	}
	env.UI.Warnf("putting back the previous static Pods of %s", NamesOf(putBack))
	if _, err := ReplaceStaticPods(ctx, env, turn, putBack); err != nil {
		return fault.WithRemedy(errors.WithMessagef(failed, "and putting back the previous static Pods failed, too (%v)", err),
			"the previous manifests are in "+BackupRoot(env)+"; `slipway diagnose` says what is wrong")
	}
	said := "the previous static Pods were put back: " + ImagesOf(putBack)
	if etcdStays {
		said += "; etcd stays at its new version, because the old one may not be able to read its data any more"
	}
	return &RolledBackError{error: errors.WithMessage(failed, said)}
}

// wasReplaced reports whether the manifest is one that this run has written, and returns it. An operator's edit since then stays.
func wasReplaced(env *step.Env, c Replacement) (now []byte, replaced bool, err error) {
	if c.Before == nil || manifests.SameStaticPod(c.Before, c.Wanted) {
		return nil, false, nil
	}
	now, err = host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(c.Name))
	return now, bytes.Equal(now, c.Wanted), err
}

// canRollBackEtcd reports whether the previous etcd may return. An etcd of another minor version may have made its data unreadable
// for the previous once it has opened it, so it must not have answered, and must have ended. If in doubt, it stays.
func canRollBackEtcd(ctx context.Context, env *step.Env, c Replacement) bool {
	if before := EtcdMinor(c.Before); before != "" && before == EtcdMinor(c.Wanted) || manifests.ImageOf(c.Before) == manifests.ImageOf(c.Wanted) {
		return true
	}
	if c.answered {
		return false
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.Name)
	return err == nil && !slices.ContainsFunc(running, func(found host.Container) bool { return found.Image != manifests.ImageOf(c.Before) })
}

// BackupRoot is the directory of the backups that upgrades make, a directory each.
func BackupRoot(env *step.Env) string { return filepath.Join(env.Settings().Paths.Kubernetes, "tmp") }
