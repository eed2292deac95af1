// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"io/fs"
	"strings"
	"time"

	"github.com/pkg/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/retry"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// IsHealthy probes a component once.
func IsHealthy(ctx context.Context, env *step.Env, component string) bool {
	probe, err := ComponentProbe(env, component)
	return err == nil && env.Host.Probe(ctx, probe) == nil
}

// PollInterval suits a probe of this host, which takes about a millisecond. Package retry lengthens it if a probe takes longer.
const PollInterval = 50 * time.Millisecond

// manifestTimeout is how long a wait allows for a static Pod to be written: the head start, and a disk that stalls.
const manifestTimeout = 2 * time.Minute

// WaitComponent polls the liveness probe's endpoint in the component's static Pod, so it respects extra arguments and patches.
func WaitComponent(ctx context.Context, env *step.Env, component string) error {
	started := env.Host.Now()
	if err := awaitHealthy(ctx, env, component); err != nil {
		return err
	}
	env.UI.Printf("%s is healthy after %.1fs", component, env.Host.Now().Sub(started).Seconds())
	return nil
}

// AwaitStarted waits until a component is healthy in a container that was created at since or later and, unless image is empty, has that
// image.
func AwaitStarted(ctx context.Context, env *step.Env, component string, since time.Time, image string) error {
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component, func(c host.Container) bool {
		return !c.Created.Before(since) && (image == "" || c.Image == "" || c.Image == image)
	})
	if err != nil {
		what := strings.TrimSuffix(component+" with image "+image, " with image ")
		return errors.Wrapf(err, "the kubelet has not started %s; see `journalctl -u kubelet` and /var/log/pods", what)
	}
	return WaitComponent(ctx, env, component)
}

func awaitHealthy(ctx context.Context, env *step.Env, component string) error {
	probe, err := awaitedProbe(ctx, env, component)
	if err != nil {
		return err
	}
	err = Poll(ctx, func(ctx context.Context) error { return env.Host.Probe(ctx, probe) })
	return errors.Wrapf(err, "%s is not healthy at %s; look at its container's log in /var/log/pods", component, probe.URL)
}

// awaitedProbe is ComponentProbe for a static Pod that may not be written before the API server's head start ends.
func awaitedProbe(ctx context.Context, env *step.Env, component string) (host.Probe, error) {
	ctx, cancel := context.WithTimeout(ctx, manifestTimeout)
	defer cancel()
	missing := env.Host.AwaitFile(ctx, env.Config.Paths.StaticPod(component), nil)
	probe, err := ComponentProbe(env, component)
	if missing == nil && errors.Is(err, fs.ErrNotExist) {
		// In a plan, files it doesn't write, such as a skipped phase's, count as present, and every probe as healthy.
		return host.Probe{}, nil
	}
	return probe, err
}

var errNoProbe = errors.New("the first container has no HTTP liveness probe to wait for")

// ComponentProbe returns the liveness probe in a component's static Pod. It fails if the Pod is missing, broken or without a probe.
func ComponentProbe(env *step.Env, component string) (host.Probe, error) {
	path := env.Config.Paths.StaticPod(component)
	data, err := env.Host.ReadFile(path)
	if err != nil {
		return host.Probe{}, errors.Wrapf(err, "the static Pod that phase `control-plane %s` writes", strings.TrimPrefix(component, "kube-"))
	}
	pod, err := manifests.DecodePod(data)
	if err != nil {
		return host.Probe{}, errors.WithMessagef(err, "%s is not a valid Pod", path)
	}
	c := &pod.Spec.Containers[0]
	base, found := manifests.ProbeBase(c)
	if !found {
		return host.Probe{}, errors.Wrap(errNoProbe, path)
	}
	return host.Probe{URL: base + c.LivenessProbe.HTTPGet.Path}, nil
}

// Poll calls try until it succeeds, or ctx ends; then it returns a *retry.Error.
func Poll(ctx context.Context, try func(context.Context) error) error {
	return retry.Every(PollInterval).Do(ctx, try)
}
