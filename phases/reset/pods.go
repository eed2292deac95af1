// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/phases/node"
)

const (
	// podsTimeout bounds the wait for the runtime's unfinished work for a kubelet that has ended. Containerd can't remove a
	// container it's starting, and gives up such a start after five seconds.
	podsTimeout = time.Minute
	// suspendedTimeout bounds the same wait while the kubelet is suspended: a network plugin may hang.
	suspendedTimeout = 5 * time.Second
	refusedInterval  = 200 * time.Millisecond
)

// endPods ends the kubelet and removes the Pods.
//
// Until they're gone, the kubelet is only suspended: its end cancels its requests, and containerd (2.2) doesn't always undo them
// properly. A Pod that was being started may leave a process and a container that CRI doesn't list ("cannot delete running
// task"), and a container that was being started can't be removed for five seconds. A suspended kubelet's requests end properly,
// within about a second, and no others follow.
func (c *cleanup) endPods(ctx context.Context) {
	ending := ctx
	if c.suspendKubelet(ctx) {
		err := c.removePods(ctx, suspendedTimeout) // tried again below
		if err != nil {
			c.stopped = time.Time{} // its requests end only with it
		}
		ending = context.WithoutCancel(ctx)                           // a suspended kubelet mustn't stay
		_ = c.Host.OrderUnit(ending, host.KillUnit, node.KubeletUnit) // StopUnit ends it, too, but lets it act first
	}
	c.stopKubelet(ending)
	limit := podsTimeout
	if c.kubeletRuns {
		limit = 0
	}
	if err := c.removePods(ctx, limit); err != nil && ctx.Err() == nil {
		c.warn(err.Error(), fault.Remedy(err))
	}
}

// runs reports whether a unit has a process, or will have.
func runs(unit host.UnitState) bool {
	return slices.Contains([]string{"active", "activating", "deactivating", "reloading"}, unit.ActiveState)
}

// suspendKubelet reports whether it suspended the kubelet.
func (c *cleanup) suspendKubelet(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	unit, err := c.Host.Unit(limited, node.KubeletUnit)
	if err != nil || unit.MainPID == 0 || c.Host.OrderUnit(limited, host.SuspendUnit, node.KubeletUnit) != nil {
		return false // stopKubelet says why
	}
	c.UI.Printf("Suspending the kubelet")
	c.stopped = c.Host.Now()
	return true
}

func (c *cleanup) stopKubelet(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	unit, err := c.Host.Unit(limited, node.KubeletUnit)
	if err == nil && !runs(unit) {
		return
	}
	if err == nil {
		c.UI.Printf("Stopping the kubelet")
		err = c.Host.OrderUnit(limited, host.StopUnit, node.KubeletUnit)
	}
	if c.kubeletRuns = err != nil; c.stopped.IsZero() {
		c.stopped = c.Host.Now()
	}
	if errors.Is(err, host.ErrNoSystemd) {
		c.warn(err.Error()+": the kubelet may still be running and may restart the Pods removed here", "stop it some other way")
		return
	}
	if err != nil {
		c.warn("the kubelet may still be running and may restart the Pods removed here: "+err.Error(), fault.Remedy(err))
		return
	}
	// A kubelet that only waits for its configuration, as packages start it, doesn't make this host a node.
	c.changed = c.changed || unit.ActiveState == "active"
}

// removePods removes the Pods, then any the runtime was still making or starting when the kubelet ended. It waits for these up to
// limit; not at all if that's 0.
func (c *cleanup) removePods(ctx context.Context, limit time.Duration) error {
	remove := func(context.Context) error { return c.removeListedPods(ctx) } // each Pod has its own limit
	err := remove(ctx)
	var refused *podsError
	if limit > 0 && (err == nil || errors.As(err, &refused)) {
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		settled := c.Host.AwaitSettled(limited, c.Config.CRISocket, c.stopped)
		err = retry.Policy{First: refusedInterval, Retryable: func(err error) bool { return errors.As(err, &refused) }}.Do(limited, remove)
		settled = errors.WithMessagef(settled, "Pods may still appear: container runtime at %s", c.Config.CRISocket)
		err = cmp.Or(err, fault.WithRemedy(settled, c.again()))
	}
	var gaveUp *retry.Error
	if errors.As(err, &gaveUp) {
		err = gaveUp.Last
	}
	return err
}

// removeListedPods removes the Pods the runtime lists. It says how many, leaving out those announced before.
func (c *cleanup) removeListedPods(ctx context.Context) error {
	socket := c.Config.CRISocket
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	pods, err := c.Host.Pods(limited, socket)
	if err != nil {
		return fault.New("Pods may still be running, because the container runtime does not answer: "+err.Error(),
			cmp.Or(fault.Remedy(err), "start it")+"; then "+c.again())
	}
	if len(pods) == 0 {
		return nil
	}
	// Pods with a network of their own go first.
	order := func(p host.Pod) string { return fmt.Sprintf("%t %s", p.HostNetwork, p) }
	sort.SliceStable(pods, func(i, j int) bool { return order(pods[i]) < order(pods[j]) })
	fresh := len(c.announced)
	for _, p := range pods {
		c.announced[p.ID] = true
	}
	if fresh = len(c.announced) - fresh; fresh > 0 {
		c.UI.Printf("Removing %d Pods", fresh)
	}
	removed, err := c.Host.RemovePods(ctx, socket, pods)
	c.changed = c.changed || len(removed) > 0
	if err != nil {
		return fault.WithRemedy(&podsError{len(pods) - len(removed), len(pods), err}, c.again())
	}
	return nil
}

// again is the remedy once the runtime works: the socket may have been found through files that are gone by then.
func (c *cleanup) again() string {
	return "run the same command again, with --cri-socket=" + c.Config.CRISocket
}

// podsError says why some Pods couldn't be removed. It passes if one of their containers was just starting.
type podsError struct {
	left, all int
	err       error
}

func (e *podsError) Error() string {
	return fmt.Sprintf("%d of %d Pods could not be removed: %v", e.left, e.all, e.err)
}
