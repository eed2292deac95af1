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
	"k8s.io/utils/ptr"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/phases/step"
)

// upgradeLease is a Lease in kube-system. Only its holder may restart its components. If the holder changes its version, the
// Lease doesn't expire: after an interruption, the node may lack its API server or etcd member, and mix versions. Otherwise, see
// leaseAbandoned. docs/design/lease-and-quorum.md has the rules.
const upgradeLease = "slipway-upgrade"

// purposeAnnotation on the Lease has its holder's Purpose.
const purposeAnnotation = "slipway/purpose"

// Purpose is why a control plane restarts its components.
type Purpose string

// The Purpose of each workflow that restarts components: upgrade, upgrade rollback, certs renew --restart, host prepare, reconfigure,
// and etcd restore. While etcd defrag rewrites a database, its member is as good as down. encryption changes which keys an API server
// has, which may be as bad as a restart.
const (
	ForUpgrade         Purpose = "upgrade"
	ForRollback        Purpose = "rollback"
	ForRenewal         Purpose = "renewal"
	ForPreparation     Purpose = "preparation"
	ForDefragmentation Purpose = "defragmentation"
	ForConfiguration   Purpose = "configuration"
	ForRestore         Purpose = "restore"
	ForEncryption      Purpose = "encryption"
)

// purposes has each purpose's words for a running holder, an unfinished run, and the command.
var purposes = map[Purpose]struct{ doing, begun, runs string }{
	ForUpgrade:     {"is being upgraded", "has started an upgrade that has not finished", "upgrade"},
	ForRollback:    {"is being rolled back", "has started a rollback that has not finished", "rollback"},
	ForRenewal:     {"is restarting with renewed certificates", "has not finished restarting with renewed certificates", "`slipway certs renew --restart`"},
	ForPreparation: {"is restarting with another kubelet", "has not finished restarting with another kubelet", "`slipway host prepare`"},

	ForConfiguration: {"is being reconfigured", "has not finished being reconfigured", "`slipway reconfigure`"},

	ForDefragmentation: {"is defragmenting etcd", "has not finished defragmenting etcd", "`slipway etcd defrag`"},
	ForRestore:         {"is restoring etcd", "has not finished restoring etcd", "`slipway etcd restore`"},
	ForEncryption:      {"is changing how Secrets are encrypted", "has not finished changing how Secrets are encrypted", "`slipway encryption`"},
}

// changesVersion reports whether an interrupted run may leave mixed versions, so only the same command may return the Lease.
func (p Purpose) changesVersion() bool { return p == ForUpgrade || p == ForRollback }

const (
	// leaseRenewal is how often a run renews its Lease. A run replacing its API server can't, and may live on after leaseSilence.
	leaseRenewal = 10 * time.Second
	leaseSilence = time.Minute
	// leaseAbandoned is how old the last renewal must be before others go on without a holder that doesn't change its version,
	// such as a node that lost its disk while it restarted with new certificates.
	leaseAbandoned = time.Hour
)

// HeldError says that another control plane holds the Lease. A silent control plane hasn't renewed it for leaseSilence.
type HeldError struct {
	holder  string
	purpose Purpose
	last    time.Time
	silent  bool
}

func (e *HeldError) Error() string {
	state := purposes[e.purpose].doing
	if e.silent {
		state = purposes[e.purpose].begun
	}
	return fmt.Sprintf("control plane %s %s (Lease %s/%s, last renewed at %s); only one at a time may restart its components",
		e.holder, state, metav1.NamespaceSystem, upgradeLease, e.last.UTC().Format(time.RFC3339))
}

// Remedy says how to get the Lease.
func (e *HeldError) Remedy() string {
	text := fmt.Sprintf("wait for it; if no %s runs there any more, run the same command again there; "+
		"if that node will not come back, delete it (`kubectl delete node %s`)", purposes[e.purpose].runs, e.holder)
	if e.purpose.changesVersion() {
		return text
	}
	return text + "; an hour after it has last renewed the Lease, others continue without it"
}

func newUpgradeLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: upgradeLease, Namespace: metav1.NamespaceSystem},
	}
}

// leaseWatch is a waiting run's view of the Lease's holder, and since when the holder hasn't renewed it.
type leaseWatch struct {
	last  HeldError
	since time.Time
}

// changes notes the holder, and reports whether there's news about it.
func (w *leaseWatch) changes(now *HeldError) bool {
	news := w.last.holder != now.holder || w.last.silent != now.silent
	if news || !w.last.last.Equal(now.last) {
		w.since = time.Now()
	}
	w.last = *now
	return news
}

// abandoned returns the holder if others may go on without it, or else nil. As the nodes' clocks may differ, it must also have
// been silent for some time while this run watched.
func (w *leaseWatch) abandoned(env *step.Env) *HeldError {
	if w.since.IsZero() || w.last.purpose.changesVersion() ||
		env.Host.Now().Sub(w.last.last) < leaseAbandoned || time.Since(w.since) < leaseSilence {
		return nil
	}
	return &w.last
}

// takeLease makes this node the holder, or returns a *HeldError. before is this node's earlier purpose, if it already was the
// holder. Another holder loses the Lease only if its Node is gone, or if it's `abandoned` and hasn't renewed the Lease since.
func takeLease(ctx context.Context, env *step.Env, purpose Purpose, abandoned *HeldError) (before Purpose, err error) {
	lease := newUpgradeLease()
	first, writes := true, false
	defer func() {
		if err != nil && writes && !errors.As(err, new(*HeldError)) {
			err = mayHoldError{err, before}
		}
	}()
	take := func() (bool, error) {
		if err := mayTakeLease(ctx, env, lease, abandoned); err != nil {
			return false, err
		}
		now := metav1.NewMicroTime(env.Host.Now())
		if holderOf(lease) != env.Config.Name {
			lease.Spec.AcquireTime = &now
		} else if first { // a later attempt may find what this run wrote, if the answer to that was lost
			before = purposeOf(lease)
		}
		first = false
		if !before.changesVersion() || purpose.changesVersion() {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, purposeAnnotation, string(purpose))
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &env.Config.Name, &now
		writes = true
		return true, nil
	}
	found, err := env.Cluster.Update(ctx, lease, take)
	if err != nil || found {
		return before, err
	}
	// The Lease is created without a holder, so one of several concurrent runs becomes the holder.
	if err := env.Cluster.Ensure(ctx, newUpgradeLease()); err != nil {
		return "", err
	}
	found, err = env.Cluster.Update(ctx, lease, take)
	if err == nil && !found {
		err = errors.Errorf("another client keeps deleting the Lease %s/%s", metav1.NamespaceSystem, upgradeLease)
	}
	return before, err
}

// mayHoldError is the error of a takeLease that has sent the Lease: it may be written, with only the answer lost. before is the earlier
// purpose of this node.
type mayHoldError struct {
	error
	before Purpose
}

func (e mayHoldError) Unwrap() error { return e.error }

func mayTakeLease(ctx context.Context, env *step.Env, lease *coordinationv1.Lease, abandoned *HeldError) error {
	holder := holderOf(lease)
	if holder == "" || holder == env.Config.Name {
		return nil
	}
	found, err := env.Cluster.Get(ctx, cluster.NewNode(holder))
	if err != nil || !found {
		return err
	}
	held := &HeldError{holder: holder, purpose: purposeOf(lease)}
	if lease.Spec.RenewTime != nil {
		held.last = lease.Spec.RenewTime.Time
	}
	held.silent = env.Host.Now().Sub(held.last) > leaseSilence
	if abandoned != nil && abandoned.holder == held.holder && abandoned.purpose == held.purpose && abandoned.last.Equal(held.last) {
		return nil
	}
	return held
}

func holderOf(lease *coordinationv1.Lease) string { return ptr.Deref(lease.Spec.HolderIdentity, "") }

// purposeOf returns the holder's purpose. Earlier releases only held the Lease for upgrades and rollbacks.
func purposeOf(lease *coordinationv1.Lease) Purpose {
	purpose := Purpose(lease.Annotations[purposeAnnotation])
	if _, known := purposes[purpose]; !known {
		return ForUpgrade
	}
	return purpose
}

// restorePurpose leaves an interrupted run its Lease as if this run hadn't resumed it, so that one that expires still does.
func restorePurpose(ctx context.Context, env *step.Env, before Purpose) error {
	lease := newUpgradeLease()
	_, err := env.Cluster.Update(ctx, lease, func() (bool, error) {
		if holderOf(lease) != env.Config.Name || purposeOf(lease) == before {
			return false, nil
		}
		metav1.SetMetaDataAnnotation(&lease.ObjectMeta, purposeAnnotation, string(before))
		return true, nil
	})
	return err
}

// withdraw leaves the Lease as it was before a takeLease that has failed, as far as the API answers now: this run ends, and others would
// wait for it.
func withdraw(ctx context.Context, env *step.Env, purpose Purpose, failed error) {
	var maybe mayHoldError
	if !errors.As(failed, &maybe) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReachTimeout)
	defer cancel()
	if maybe.before != "" {
		_ = restorePurpose(ctx, env, maybe.before)
	} else {
		_ = returnLease(ctx, env, purpose)
	}
}

// returnLease leaves the Lease without a holder, unless this node holds it for an unfinished change of its version, and purpose
// isn't such a change.
func returnLease(ctx context.Context, env *step.Env, purpose Purpose) error {
	lease := newUpgradeLease()
	_, err := env.Cluster.Update(ctx, lease, func() (bool, error) {
		if holderOf(lease) != env.Config.Name || purposeOf(lease).changesVersion() && !purpose.changesVersion() {
			return false, nil
		}
		lease.Spec = coordinationv1.LeaseSpec{}
		delete(lease.Annotations, purposeAnnotation)
		return true, nil
	})
	return err
}
