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
)

// upgradeLease is the Lease in kube-system whose holder is the control plane that is being upgraded. It does not expire: a
// node whose run was interrupted may be without its API server or its member of etcd.
const upgradeLease = "slipway-upgrade"

const (
	// leaseRenewal is how often a run renews its Lease; after leaseSilence without that, it does not run any more.
	leaseRenewal = 10 * time.Second
	leaseSilence = time.Minute
)

// heldError says who holds the Lease.
type heldError struct {
	holder string
	last   time.Time
}

func (e *heldError) Error() string {
	return fmt.Sprintf("control plane %s is being upgraded (Lease %s/%s, renewed at %s), and only one may be at a time",
		e.holder, metav1.NamespaceSystem, upgradeLease, e.last.UTC().Format(time.RFC3339))
}

// takeTurn waits until no other control plane is being upgraded, and makes this node the holder of the Lease. It renews it
// until the end of the run. giveBack is for a node that is as it should be; otherwise the Lease stays with it.
func takeTurn(ctx context.Context, env *Env) (giveBack func(context.Context) error, err error) {
	lease := newUpgradeLease()
	if err := env.Cluster.Ensure(ctx, lease); err != nil {
		return nil, err
	}
	said := ""
	limited, cancel := context.WithTimeout(ctx, env.Config.Timeouts.UpgradeManifests)
	defer cancel()
	err = poll(limited, func(ctx context.Context) error {
		err := hold(ctx, env)
		held := (*heldError)(nil)
		if errors.As(err, &held) && said != held.holder {
			said = held.holder
			env.UI.Printf("Waiting, up to %s: %v", env.Config.Timeouts.UpgradeManifests, err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	stop := keepTurn(ctx, env)
	return func(ctx context.Context) error {
		stop()
		return release(ctx, env)
	}, nil
}

func newUpgradeLease() *coordinationv1.Lease {
	return &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Name: upgradeLease, Namespace: metav1.NamespaceSystem},
	}
}

// hold makes this node the holder, or returns a *heldError. Only a holder whose Node is gone is replaced.
func hold(ctx context.Context, env *Env) error {
	lease := newUpgradeLease()
	_, err := env.Cluster.Update(ctx, lease, func() (bool, error) {
		if err := mayHold(ctx, env, lease); err != nil {
			return false, err
		}
		now := metav1.NewMicroTime(env.Host.Now())
		if holderOf(lease) != env.Config.Name {
			lease.Spec.AcquireTime = &now
		}
		lease.Spec.HolderIdentity, lease.Spec.RenewTime = &env.Config.Name, &now
		return true, nil
	})
	return err
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
	if env.Host.Now().Sub(held.last) < leaseSilence {
		return held
	}
	return fault.WithRemedy(errors.WithMessage(held, "that upgrade was interrupted"), fmt.Sprintf(
		"finish it there with the same command; if that node will not come back, delete it (`kubectl delete node %s`)", holder))
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
				_ = hold(ctx, env) // the next one may succeed
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
