// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"
	"time"

	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
)

// upgradeLease is the Lease in kube-system whose holder is the control plane whose components are being restarted, mostly for
// an upgrade. It does not expire for a change of the version: a node whose run was interrupted may be without its API server or
// its member of etcd, and its components of several versions. Otherwise see leaseAbandoned.
const upgradeLease = "slipway-upgrade"

// purposeAnnotation says on the Lease what its holder does.
const purposeAnnotation = "slipway/purpose"

// Purpose is why a control plane's components are restarted.
type Purpose string

const (
	ForUpgrade     Purpose = "upgrade"
	ForRollback    Purpose = "rollback"
	ForRenewal     Purpose = "renewal"
	ForPreparation Purpose = "preparation"
)

// purposes say of each purpose what a holder does, what it has begun, and what runs there.
var purposes = map[Purpose]struct{ doing, begun, runs string }{
	ForUpgrade:     {"is being upgraded", "has started an upgrade that has not finished", "upgrade"},
	ForRollback:    {"is being rolled back", "has started a rollback that has not finished", "rollback"},
	ForRenewal:     {"is restarting with renewed certificates", "has not finished restarting with renewed certificates", "`slipway certs renew --restart`"},
	ForPreparation: {"is restarting with another kubelet", "has not finished restarting with another kubelet", "`slipway host prepare`"},
}

// changesVersion reports whether an interrupted run may have left components of several versions, so that only the same
// command may give the Lease back.
func (p Purpose) changesVersion() bool { return p == ForUpgrade || p == ForRollback }

const (
	// leaseRenewal is how often a run renews its Lease. It cannot while its own API server is replaced, so a run that has not
	// done so for longer than leaseSilence may still be one that goes on.
	leaseRenewal = 10 * time.Second
	leaseSilence = time.Minute
	// leaseAbandoned is how old the last renewal has to be before another control plane goes on without a holder that does not
	// change its version, such as one that has lost its disk while it restarted with new certificates.
	leaseAbandoned = time.Hour
	// TurnInterval is how often a run looks whether the Lease is free.
	TurnInterval = time.Second
)

// HeldError says who holds the Lease.
type HeldError struct {
	holder string
	what   Purpose
	last   time.Time
	silent bool
}

func (e *HeldError) Error() string {
	state := purposes[e.what].doing
	if e.silent {
		state = purposes[e.what].begun
	}
	return fmt.Sprintf("control plane %s %s (Lease %s/%s, last renewed at %s); only one at a time may restart its components",
		e.holder, state, metav1.NamespaceSystem, upgradeLease, e.last.UTC().Format(time.RFC3339))
}

func (e *HeldError) remedy() string {
	text := fmt.Sprintf("wait for it; if no %s runs there any more, run the same command again there; "+
		"if that node will not come back, delete it (`kubectl delete node %s`)", purposes[e.what].runs, e.holder)
	if e.what.changesVersion() {
		return text
	}
	return text + "; an hour after it has last renewed the Lease, others go on without it"
}

func newUpgradeLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: upgradeLease, Namespace: metav1.NamespaceSystem},
	}
}

// watch is a holder of the Lease as a run that waits sees it, and since when it has not renewed the Lease.
type watch struct {
	last  HeldError
	since time.Time
}

// changes takes note of the holder, and reports whether there is something to say about it.
func (w *watch) changes(now *HeldError) bool {
	news := w.last.holder != now.holder || w.last.silent != now.silent
	if news || !w.last.last.Equal(now.last) {
		w.since = time.Now()
	}
	w.last = *now
	return news
}

// abandoned returns the holder if others may go on without it; nil if not. The clocks of two nodes may differ, so it must also
// have been silent for some time while this run has watched it.
func (w *watch) abandoned(env *step.Env) *HeldError {
	if w.since.IsZero() || w.last.what.changesVersion() ||
		env.Host.Now().Sub(w.last.last) < leaseAbandoned || time.Since(w.since) < leaseSilence {
		return nil
	}
	return &w.last
}

// hold makes this node the holder, or returns a *HeldError. before is what the node has held it for already, if it has. It replaces
// a holder only if its Node is gone, or if it is `abandoned` and hasn't renewed the Lease since.
func hold(ctx context.Context, env *step.Env, what Purpose, abandoned *HeldError) (before Purpose, err error) {
	lease := newUpgradeLease()
	take := func() (bool, error) {
		if err := mayHold(ctx, env, lease, abandoned); err != nil {
			return false, err
		}
		now := metav1.NewMicroTime(env.Host.Now())
		if before = ""; holderOf(lease) == env.Config.Name {
			before = purposeOf(lease)
		} else {
			lease.Spec.AcquireTime = &now
		}
		if !before.changesVersion() || what.changesVersion() {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, purposeAnnotation, string(what))
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &env.Config.Name, &now
		return true, nil
	}
	found, err := env.Cluster.Update(ctx, lease, take)
	if err != nil || found {
		return before, err
	}
	// It is created without a holder: of several runs that do so, one becomes the holder.
	if err := env.Cluster.Ensure(ctx, newUpgradeLease()); err != nil {
		return "", err
	}
	found, err = env.Cluster.Update(ctx, lease, take)
	if err == nil && !found {
		err = errors.Errorf("somebody deletes the Lease %s/%s", metav1.NamespaceSystem, upgradeLease)
	}
	return before, err
}

func mayHold(ctx context.Context, env *step.Env, lease *coordinationv1.Lease, abandoned *HeldError) error {
	holder := holderOf(lease)
	if holder == "" || holder == env.Config.Name {
		return nil
	}
	found, err := env.Cluster.Get(ctx, cluster.NewNode(holder))
	if err != nil || !found {
		return err
	}
	held := &HeldError{holder: holder, what: purposeOf(lease)}
	if lease.Spec.RenewTime != nil {
		held.last = lease.Spec.RenewTime.Time
	}
	held.silent = env.Host.Now().Sub(held.last) > leaseSilence
	if abandoned != nil && abandoned.holder == held.holder && abandoned.what == held.what && abandoned.last.Equal(held.last) {
		return nil
	}
	return held
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// purposeOf is what the holder of a Lease does. Earlier releases only held it for upgrades and rollbacks.
func purposeOf(lease *coordinationv1.Lease) Purpose {
	what := Purpose(lease.Annotations[purposeAnnotation])
	if _, known := purposes[what]; !known {
		return ForUpgrade
	}
	return what
}

// keepTurn renews the Lease until stop is called or the run ends. The API may be away meanwhile.
func keepTurn(ctx context.Context, env *step.Env, what Purpose) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ticker := time.NewTicker(leaseRenewal); ; {
			select {
			case <-ctx.Done():
				ticker.Stop()
				return
			case <-ticker.C:
				_, _ = hold(ctx, env, what, nil) // the next one may succeed
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// release gives the Lease back, unless this node has it for a change of its version that has not finished, and what is
// something else.
func release(ctx context.Context, env *step.Env, what Purpose) error {
	lease := newUpgradeLease()
	_, err := env.Cluster.Update(ctx, lease, func() (bool, error) {
		if holderOf(lease) != env.Config.Name || purposeOf(lease).changesVersion() && !what.changesVersion() {
			return false, nil
		}
		lease.Spec = coordinationv1.LeaseSpec{}
		delete(lease.Annotations, purposeAnnotation)
		return true, nil
	})
	return err
}
