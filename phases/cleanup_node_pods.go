// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
)

const (
	// podsLimit bounds the wait for what the runtime still does for the kubelet that has ended. Containerd cannot remove a
	// container that it starts, and gives up such a start after five seconds.
	podsLimit = 20 * time.Second
	// refusedInterval is the time between two tries to remove the same Pod.
	refusedInterval = 200 * time.Millisecond
)

// removePods removes the Pods, and then those that the runtime was still making or starting when the kubelet ended.
// Nothing is waited for if the kubelet may still run: it would make more.
func (c *cleanup) removePods(ctx context.Context) {
	announced := map[string]bool{}
	remove := func(context.Context) error { return c.removeListedPods(ctx, announced) } // each Pod has its own limit
	err := remove(ctx)
	var refused *podsError
	if !c.kubeletRuns && (err == nil || errors.As(err, &refused)) {
		limited, cancel := context.WithTimeout(ctx, podsLimit)
		defer cancel()
		settled := c.Host.AwaitSettled(limited, c.Config.CRISocket, c.stopped)
		err = retry.Policy{First: refusedInterval, Passes: func(err error) bool { return errors.As(err, &refused) }}.Do(limited, remove)
		settled = errors.WithMessagef(settled, "Pods may still appear: container runtime at %s", c.Config.CRISocket)
		err = cmp.Or(err, fault.WithRemedy(settled, c.again()))
	}
	var gaveUp *retry.Error
	if errors.As(err, &gaveUp) {
		err = gaveUp.Last
	}
	if err != nil && ctx.Err() == nil {
		c.warn(err.Error(), fault.Remedy(err))
	}
}

// removeListedPods removes the Pods that the runtime lists. It says how many, except for those that it has announced
// before.
func (c *cleanup) removeListedPods(ctx context.Context, announced map[string]bool) error {
	socket := c.Config.CRISocket
	limited, cancel := context.WithTimeout(ctx, askLimit)
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
	slices.SortFunc(pods, func(a, b host.Pod) int { return cmp.Compare(order(a), order(b)) })
	fresh := len(announced)
	for _, p := range pods {
		announced[p.ID] = true
	}
	if fresh = len(announced) - fresh; fresh > 0 {
		c.UI.Printf("Removing %d Pods", fresh)
	}
	removed, err := c.Host.RemovePods(ctx, socket, pods)
	c.changed = c.changed || len(removed) > 0
	if err != nil {
		return fault.WithRemedy(&podsError{len(pods) - len(removed), len(pods), err}, c.again())
	}
	return nil
}

// again is what helps once the runtime does: the socket may have been found by files that are gone then.
func (c *cleanup) again() string {
	return "run the same command again, with --cri-socket=" + c.Config.CRISocket
}

// podsError is why some Pods could not be removed. It passes if one of their containers was just being started.
type podsError struct {
	left, all int
	err       error
}

func (e *podsError) Error() string {
	return fmt.Sprintf("%d of %d Pods could not be removed: %v", e.left, e.all, e.err)
}
