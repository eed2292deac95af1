// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/diagnose"
)

// explainTime bounds the search for the cause of a failure.
const explainTime = 15 * time.Second

// errCauseKnown ends a wait that cannot succeed.
var errCauseKnown = errors.New("stopped waiting because the cause is known:")

// watched runs wait for at most limit, and meanwhile looks for what would keep it from
// succeeding: once such a cause is known, the wait ends. Its error, and that of a wait
// whose time is up, lists what was found. failure says what it means that the wait
// fails.
func watched(ctx context.Context, env *Env, limit time.Duration, t diagnose.Target, failure string, wait func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := env.Host.Now()
	ctx, giveUp := context.WithCancelCause(ctx)
	var found []diagnose.Finding
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if found = diagnose.Watch(watching, env.Host, t); len(found) > 0 {
			giveUp(errCauseKnown)
		}
	}()
	err := wait(ctx)
	late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	stop()
	<-ended
	giveUp(nil)
	switch {
	case err == nil:
		return nil
	case len(found) > 0:
		return &diagnose.Error{Err: errors.Errorf("%s; %v", failure, errCauseKnown), Findings: found}
	case late:
		return explained(ctx, env, began, t, err)
	}
	return err
}

// explained adds to err what a look at the host finds. began is when what failed
// began.
func explained(ctx context.Context, env *Env, began time.Time, t diagnose.Target, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) { // the user has stopped the run
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainTime)
	defer cancel()
	t.Waiting = true
	t.Since = diagnose.Beginning(ctx, env.Host, began)
	if found := diagnose.Run(ctx, env.Host, t); len(found) > 0 {
		return &diagnose.Error{Err: err, Findings: found}
	}
	return err
}

// kubeletTarget is this node without the control plane, whose files may still
// be written.
func kubeletTarget(n *config.Node) diagnose.Target {
	return diagnose.Target{Socket: n.CRISocket, Kubelet: n.Paths.Kubelet, Kubeconfigs: n.Paths.Kubeconfigs}
}

// nodeTarget is the whole node.
func nodeTarget(n *config.Node) diagnose.Target {
	t := kubeletTarget(n)
	if n.ControlPlane {
		t.Manifests = n.Paths.Manifests
	}
	return t
}
