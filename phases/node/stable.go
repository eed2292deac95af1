// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/pkg/errors"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

const (
	// trialPeriod is how long a change has to work without a failure before it counts.
	trialPeriod = 10 * time.Second
	// trialCheck is how often it's looked at meanwhile.
	trialCheck = time.Second
)

// proofTimeout limits a look at whether this node works: it asks all components, one after another, and a user who gives them longer
// to start has a slow host. It's ReachTimeout by default.
func proofTimeout(env *step.Env) time.Duration {
	return max(ReachTimeout, env.Config.Timeouts.UpgradeManifests/30)
}

// AwaitStable waits until this node has worked for trialPeriod without a failure, as a client sees it, and its kubelet has
// reported after that. A failure starts the time again. Once the cause of a failure is known, it's the error. docs/design/trial.md
// has the conditions.
func (t Lease) AwaitStable(ctx context.Context, env *step.Env) error {
	env.UI.Printf("On trial: everything has to work for %s", trialPeriod)
	return env.Guard(ctx, &env.Config.Timeouts.UpgradeManifests, env.NodeTarget(), "this node does not work with the change", func(ctx context.Context) error {
		for {
			if err := Poll(ctx, func(ctx context.Context) error { return t.checkHealth(ctx, env) }); err != nil {
				return err
			}
			if again, err := t.awaitTrialPeriod(ctx, env); !again {
				return err
			}
		}
	})
}

// awaitTrialPeriod waits for the kubelet's next report after trialPeriod. again is set if something failed meanwhile.
func (t Lease) awaitTrialPeriod(ctx context.Context, env *step.Env) (again bool, err error) {
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := Repeat(watched, trialCheck, func(ctx context.Context) {
		if err := t.checkHealth(ctx, env); err != nil && ctx.Err() == nil {
			cancel(err)
		}
	})
	err = env.Cluster.AwaitReport(watched, env.Config.Name, env.Host.Now().Add(trialPeriod))
	stop()
	return watched.Err() != nil && ctx.Err() == nil, err
}

// checkHealth reports why this node doesn't work now. On a control plane, each component answers its probe, the API server is
// ready, this member of etcd follows a leader, and a write arrives. On a worker, the kubelet is healthy.
func (t Lease) checkHealth(ctx context.Context, env *step.Env) error {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout(env))
	defer cancel()
	if !env.Config.ControlPlane {
		return kubeletAnswers(ctx, env)
	}
	components := StaticPods(env)
	for _, component := range components {
		probe, err := ComponentProbe(env, component)
		if err == nil {
			err = env.Host.Probe(ctx, probe)
		}
		if err != nil {
			return errors.WithMessage(err, component+" does not answer its probe")
		}
	}
	if slices.Contains(components, manifests.EtcdName) {
		if err := caughtUp(ctx, env); err != nil {
			return err
		}
	}
	if err := env.Cluster.Ready(ctx); err != nil {
		return err
	}
	_, err := takeLease(ctx, env, t.purpose, nil)
	return err
}

// NewComponentProbeCheck returns the check for UnprovableComponents.
func NewComponentProbeCheck(env *step.Env) preflight.Check {
	return preflight.Check{
		Name: fault.ComponentProbe, Description: "a run can see whether the components work, from their HTTP liveness probes, without credentials",
		Run: func(ctx context.Context, _ preflight.View) []fault.Finding { return UnprovableComponents(ctx, env) },
	}
}

// UnprovableComponents finds components of this control plane whose health a run couldn't prove after a restart, nor after putting
// them back: they have no HTTP liveness probe, or it needs credentials or redirects. A component that's merely down isn't one.
func UnprovableComponents(ctx context.Context, env *step.Env) (found []fault.Finding) {
	ctx, cancel := context.WithTimeout(ctx, proofTimeout(env))
	defer cancel()
	unasked := false
	for _, component := range StaticPods(env) {
		probe, err := ComponentProbe(env, component)
		switch {
		case errors.Is(err, errNoProbe):
			remedy := "restore an httpGet livenessProbe of the container, in the file and in the patch that changes it"
			found = append(found, unprovable(component, remedy, err))
			continue
		case err != nil:
			found = append(found, fault.NewFinding(fault.ComponentProbe, fault.Unasked, "run this as root; if the file is not a valid Pod, correct it",
				"the probe of %s was not checked: %v", component, err))
			continue
		}
		var answer *host.ProbeError
		_, err = env.Host.Fetch(ctx, probe) // in a plan, Probe would succeed without asking
		switch {
		case errors.As(err, &answer) && (answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden || redirects(answer)):
			found = append(found, unprovable(component, provableProbe(component, answer), err))
		case errors.Is(err, host.ErrNotInPlan) || ctx.Err() != nil:
			unasked = true
		}
	}
	if unasked {
		found = append(found, fault.NewFinding(fault.ComponentProbe, fault.Unasked, "run this without --dry-run; `slipway diagnose` shows components that do not answer",
			"the components' probes were not asked, and may need credentials"))
	}
	return found
}

func unprovable(component, remedy string, err error) fault.Finding {
	return fault.NewFinding(fault.ComponentProbe, fault.Error, remedy, "slipway could restart %s, but not see whether it works: %v", component, err)
}

// redirects reports whether an answer is a success for the kubelet, but not for a run, which accepts only 200.
func redirects(answer *host.ProbeError) bool { return answer.Status >= 300 && answer.Status < 400 }

// provableProbe is the advice for a component that answers its probe only with credentials, or with a redirection.
func provableProbe(component string, answer *host.ProbeError) string {
	const inFile = ", in the file and in the patch that changes it"
	switch {
	case redirects(answer):
		return "name a path that answers with 200 in the container's livenessProbe" + inFile
	case component == manifests.APIServerName:
		return "allow anonymous requests to /livez, /readyz and /healthz, through an AuthenticationConfiguration (--authentication-config), " +
			"and the ClusterRole system:public-info-viewer for system:unauthenticated"
	case component == manifests.EtcdName:
		return "let the container's livenessProbe ask an address of --listen-metrics-urls, where etcd needs no credentials" + inFile
	}
	return "name the probe's path in --authorization-always-allow-paths of " + component
}
