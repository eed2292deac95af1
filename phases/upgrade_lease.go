// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"fmt"
	"time"

	"github.com/pkg/errors"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/retry"
)

// upgradeLease is the Lease in kube-system whose holder is the control plane that is being upgraded. It does not expire: a
// node whose run was interrupted may be without its API server or its member of etcd.
const upgradeLease = "slipway-upgrade"

const (
	// leaseRenewal is how often a run renews its Lease. It cannot while its own API server is replaced, so a run that has not
	// done so for longer than leaseSilence may still be one that goes on.
	leaseRenewal = 10 * time.Second
	leaseSilence = time.Minute
	// turnInterval is how often a run looks whether the Lease is free.
	turnInterval = time.Second
)

// heldError says who holds the Lease.
type heldError struct {
	holder string
	last   time.Time
	silent bool
}

func (e *heldError) Error() string {
	state := "is being upgraded"
	if e.silent {
		state = "has started an upgrade that has not finished"
	}
	return fmt.Sprintf("control plane %s %s (Lease %s/%s, last renewed at %s); only one may be upgraded at a time",
		e.holder, state, metav1.NamespaceSystem, upgradeLease, e.last.UTC().Format(time.RFC3339))
}

func (e *heldError) remedy() string {
	return fmt.Sprintf("wait for it; if no upgrade runs there any more, run the same command again there; "+
		"if that node will not come back, delete it (`kubectl delete node %s`)", e.holder)
}

// turn is this node's, while it holds the Lease.
type turn struct {
	// continued is set if this node has held the Lease already: an earlier run was interrupted or has failed.
	continued bool
	// giveBack is for a node that is as it should be; otherwise the Lease stays with it.
	giveBack func(context.Context) error
}

// takeTurn waits until no other control plane is being upgraded, and makes this node the holder of the Lease. It renews it
// until the end of the run.
func takeTurn(ctx context.Context, env *Env) (turn, error) {
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.UpgradeManifests)
	defer cancel()
	held, said, continued := (*heldError)(nil), heldError{}, false
	err := retry.Policy{First: turnInterval, Passes: func(err error) bool { return errors.As(err, &held) }}.Do(limited, func(ctx context.Context) (err error) {
		continued, err = hold(ctx, env)
		if errors.As(err, &held) && (said.holder != held.holder || said.silent != held.silent) {
			said = *held
			env.UI.Warn(fmt.Sprintf("waiting, up to %s: %v", env.Config.Timeouts.UpgradeManifests, held), held.remedy())
		}
		return err
	})
	switch {
	case errors.As(err, &held):
		return turn{}, fault.WithRemedy(err, held.remedy())
	case err != nil:
		return turn{}, err
	}
	stop := keepTurn(ctx, env)
	return turn{continued, func(ctx context.Context) error {
		stop()
		return release(ctx, env)
	}}, nil
}

func newUpgradeLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: upgradeLease, Namespace: metav1.NamespaceSystem},
	}
}

// hold makes this node the holder, or returns a *heldError. continued reports whether it was already. Only a holder whose
// Node is gone is replaced.
func hold(ctx context.Context, env *Env) (continued bool, err error) {
	lease := newUpgradeLease()
	take := func() (bool, error) {
		if err := mayHold(ctx, env, lease); err != nil {
			return false, err
		}
		now := metav1.NewMicroTime(env.Host.Now())
		if continued = holderOf(lease) == env.Config.Name; !continued {
			lease.Spec.AcquireTime = &now
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &env.Config.Name, &now
		return true, nil
	}
	found, err := env.Cluster.Update(ctx, lease, take)
	if err != nil || found {
		return continued, err
	}
	// It is created without a holder: of several runs that do so, one becomes the holder.
	if err := env.Cluster.Ensure(ctx, newUpgradeLease()); err != nil {
		return false, err
	}
	found, err = env.Cluster.Update(ctx, lease, take)
	if err == nil && !found {
		err = errors.Errorf("somebody deletes the Lease %s/%s", metav1.NamespaceSystem, upgradeLease)
	}
	return continued, err
}

func mayHold(ctx context.Context, env *Env, lease *coordinationv1.Lease) error {
	holder := holderOf(lease)
	if holder == "" || holder == env.Config.Name {
		return nil
	}
	found, err := env.Cluster.Get(ctx, cluster.NewNode(holder))
	if err != nil || !found {
		return err
	}
	held := &heldError{holder: holder}
	if lease.Spec.RenewTime != nil {
		held.last = lease.Spec.RenewTime.Time
	}
	held.silent = env.Host.Now().Sub(held.last) > leaseSilence
	return held
}

func holderOf(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// keepTurn renews the Lease until stop is called or the run ends. The API may be away meanwhile.
func keepTurn(ctx context.Context, env *Env) (stop func()) {
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
				_, _ = hold(ctx, env) // the next one may succeed
			}
		}
	}()
	return func() { cancel(); <-ended }
}

func release(ctx context.Context, env *Env) error {
	lease := newUpgradeLease()
	_, err := env.Cluster.Update(ctx, lease, func() (bool, error) {
		if holderOf(lease) != env.Config.Name {
			return false, nil
		}
		lease.Spec = coordinationv1.LeaseSpec{}
		return true, nil
	})
	return err
}
