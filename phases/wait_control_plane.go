// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"cmp"
	"context"
	"io/fs"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// pollInterval suits a probe of this host, which takes about a millisecond.
const pollInterval = 50 * time.Millisecond

// headStart is how long at most the components that can do nothing without the API server wait for it, so that it has
// the processors to itself. It needs three seconds on a machine with two slow processors.
const headStart = 10 * time.Second

// manifestTime is how long a static Pod may take to be written after the wait
// has begun: the head start, and a disk that stalls.
const manifestTime = 30 * time.Second

// waitControlPlane watches over the whole control plane. Its first child says
// when the components that can do nothing without the API server may start.
func waitControlPlane() Phase {
	return Phase{
		Name:       "wait-control-plane",
		Summary:    "Wait until the kubelet and the control plane are healthy",
		Flags:      []string{},
		Whole:      true,
		SideBySide: true,
		Children: []Phase{
			{Name: "api-server", Summary: "Give the API server a head start", Run: runHeadStart},
			{Name: "health", Summary: "Wait until the kubelet and the control plane are healthy", Run: runWaitHealth},
			Phase{Name: "network", Summary: "Ask the API whether it takes the objects of --network FILE", Run: checkNetwork}.
				Needing("wait-control-plane/health"),
		},
	}
}

// runHeadStart ends as soon as the API server gives any answer. It begins to serve a second or more before it is
// healthy, and forbids everything to almost everybody until it has written its default roles. What the components
// wait for is created at once, so that they need not: without that, the first node gets its certificate about eight
// seconds later.
//
// Why the API server gives no answer is for runWaitHealth to say.
func runHeadStart(ctx context.Context, env *Env) error {
	probe, err := componentProbe(env, manifests.APIServerName)
	if err != nil {
		return nil
	}
	started := env.Host.Now()
	early, cancel := context.WithTimeout(ctx, headStart)
	defer cancel()
	err = poll(early, func(ctx context.Context) error {
		err := env.Host.Probe(ctx, probe)
		if status := (*host.ProbeError)(nil); errors.As(err, &status) {
			return nil
		}
		return err
	})
	if err == nil {
		env.UI.Printf("kube-apiserver answers after %.1fs", env.Host.Now().Sub(started).Seconds())
		precreate(ctx, env)
	}
	return context.Cause(ctx)
}

// precreate does nothing in a cluster that was there before.
func precreate(ctx context.Context, env *Env) {
	if env.Again {
		return
	}
	var objs []cluster.Object
	for _, obj := range manifests.FirstStart(env.Config) {
		objs = append(objs, obj)
	}
	ctx, cancel := context.WithTimeout(ctx, headStart)
	defer cancel()
	if err := env.Cluster.Precreate(ctx, objs...); err != nil {
		env.UI.Printf("kube-controller-manager and kube-scheduler need a few seconds more to start: %v", err)
	}
}

func runWaitHealth(ctx context.Context, env *Env) error {
	if err := waitKubelet(ctx, env); err != nil {
		return err
	}
	limit := env.Config.Timeouts.ControlPlaneComponentHealthCheck
	env.UI.Printf("Waiting for the control plane, up to %s", limit)
	err := diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), "the control plane did not become healthy", func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, component := range []string{manifests.APIServerName, manifests.ControllerManagerName, manifests.SchedulerName} {
			group.Go(func() error { return waitComponent(ctx, env, component) })
		}
		return group.Wait()
	})
	if err != nil {
		return err
	}
	return env.Host.Remove(thisnode.JoinUnfinished(env.Config))
}

// waitKubelet waits for the kubelet's own health endpoint, where its settings
// and flags have it.
func waitKubelet(ctx context.Context, env *Env) error {
	settings, err := thisnode.KubeletSettings(env.Host, env.Config)
	if err != nil {
		return err
	}
	port := int32(10248)
	if settings.HealthzPort != nil {
		port = *settings.HealthzPort
	}
	if port == 0 {
		env.UI.Printf("The kubelet has no health endpoint (healthzPort: 0), so there is nothing to wait for")
		return nil
	}
	address := cmp.Or(settings.HealthzBindAddress, "127.0.0.1")
	probe := host.Probe{URL: "http://" + net.JoinHostPort(address, strconv.Itoa(int(port))) + "/healthz"}
	limit := env.Config.Timeouts.KubeletHealthCheck
	env.UI.Printf("Waiting for the kubelet at %s, up to %s", probe.URL, limit)
	const failure = "the kubelet is not healthy; `journalctl -u kubelet` says why"
	return diagnose.Guard(ctx, env.Host, limit, env.kubeletTarget(), failure, func(ctx context.Context) error {
		err := poll(ctx, func(ctx context.Context) error { return env.Host.Probe(ctx, probe) })
		return errors.WithMessage(err, failure)
	})
}

// waitComponent asks the endpoint that the component's own static Pod names
// for its liveness probe, so that extra arguments and patches are heeded.
func waitComponent(ctx context.Context, env *Env, component string) error {
	started := env.Host.Now()
	if err := awaitHealthy(ctx, env, component); err != nil {
		return err
	}
	env.UI.Printf("%s is healthy after %.1fs", component, env.Host.Now().Sub(started).Seconds())
	return nil
}

func awaitHealthy(ctx context.Context, env *Env, component string) error {
	probe, err := awaitedProbe(ctx, env, component)
	if err != nil {
		return err
	}
	err = poll(ctx, func(ctx context.Context) error { return env.Host.Probe(ctx, probe) })
	return errors.Wrapf(err, "%s is not healthy at %s; look at its container's log in /var/log/pods", component, probe.URL)
}

// awaitedProbe is componentProbe for a static Pod that may be written only after
// the API server's head start.
func awaitedProbe(ctx context.Context, env *Env, component string) (host.Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, manifestTime)
	defer cancel()
	missing := env.Host.AwaitFile(ctx, thisnode.StaticPodPath(env.Config, component), nil)
	probe, err := componentProbe(env, component)
	if missing == nil && errors.Is(err, fs.ErrNotExist) {
		// A plan takes a file for present that it does not write, such as one of
		// a phase that is skipped, and whatever it asks for healthy.
		return host.Probe{}, nil
	}
	return probe, err
}

func componentProbe(env *Env, component string) (host.Probe, error) {
	path := thisnode.StaticPodPath(env.Config, component)
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return host.Probe{}, errors.Wrapf(err, "the static Pod that phase `control-plane %s` writes", strings.TrimPrefix(component, "kube-"))
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(data, &pod); err != nil {
		return host.Probe{}, errors.Wrapf(err, "%s is not a valid Pod", path)
	}
	if c := pod.Spec.Containers; len(c) > 0 {
		if base, found := diagnose.ProbeBase(c[0]); found {
			return host.Probe{URL: base + c[0].LivenessProbe.HTTPGet.Path}, nil
		}
	}
	return host.Probe{}, errors.Errorf("%s: the first container has no HTTP liveness probe to wait for", path)
}

// poll calls try until it succeeds, or ctx ends; then it returns a *retry.Error.
func poll(ctx context.Context, try func(context.Context) error) error {
	return retry.Every(pollInterval).Do(ctx, try)
}
