// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/certs"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// RestartStale restarts those components that are stale, and waits until all are healthy. The running kubelet starts them.
func RestartStale(ctx context.Context, env *step.Env, turn Lease, components ...string) error {
	since := map[string]time.Time{} // the earliest creation time of a component's container
	for _, name := range components {
		var err error
		if since[name], err = CredentialsChanged(env, name); err != nil {
			return err
		}
	}
	stale, err := StaleComponents(ctx, env, components...)
	if err != nil {
		return err
	}
	began := env.Host.Now()
	for _, c := range stale {
		env.UI.Printf("Restarting %s", c.Name)
	}
	if stale, err = stopStaticPods(ctx, env, turn, stale, thisKubelet); err != nil {
		return err
	}
	for _, c := range stale {
		since[c.Name] = began
	}
	for _, name := range components {
		if !HasComponent(stale, name) { // may have crashed with its old certificate; on failure, the restart only takes longer
			_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, name)
		}
	}
	return awaitAllRestarted(ctx, env, since)
}

// awaitAllRestarted waits until each component is healthy, in a container created after its time in since.
func awaitAllRestarted(ctx context.Context, env *step.Env, since map[string]time.Time) error {
	limit := &env.Config.Timeouts.ControlPlaneComponentHealthCheck
	names := slices.Sorted(maps.Keys(since))
	failure := strings.Join(names, " and ") + " did not become healthy after the restart"
	return env.Guard(ctx, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, name := range names {
			group.Go(func() error { return AwaitStarted(ctx, env, name, since[name], "") })
		}
		return group.Wait()
	})
}

// StaleComponents returns the components whose containers are older than their certificates and keys. Their manifests stay, except
// a controller manager's that couldn't start with several CAs.
func StaleComponents(ctx context.Context, env *step.Env, names ...string) (list []Replacement, err error) {
	for _, name := range names {
		c := Replacement{Name: name}
		if name == manifests.ControllerManagerName {
			c, err = WithSigner(env)
		} else {
			c.Before, err = host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(name))
			c.Wanted = c.Before
		}
		if err == nil {
			c.Stale, err = StaleContainers(ctx, env, name)
		}
		if err != nil {
			return nil, err
		}
		if c.Before != nil && (len(c.Stale) > 0 || !bytes.Equal(c.Before, c.Wanted)) {
			list = append(list, c)
		}
	}
	return list, nil
}

// WithSigner returns the controller manager with a manifest that signs with a file of its own if ca.crt holds several CAs.
// Writing it makes the kubelet restart the component. If somebody has chosen another file, the manifest stays.
func WithSigner(env *step.Env) (Replacement, error) {
	c := Replacement{Name: manifests.ControllerManagerName}
	have, err := host.ReadIfExists(env.Host, env.Config.Paths.StaticPod(c.Name))
	if err != nil {
		return c, err
	}
	c.Before = have
	c.Wanted, err = env.PKI().WithSigner(have)
	return c, err
}

// StaleContainers returns a component's containers that are older than its certificates and keys. After the clock was set back, only
// containers from before that can be compared with certificates from before it.
func StaleContainers(ctx context.Context, env *step.Env, component string) ([]host.Container, error) {
	now := env.Host.Now()
	changed, ahead, err := credentialsChanged(env, component, now)
	if err != nil {
		return nil, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool {
		return !c.Created.Before(changed) && (!c.Created.After(now) || !c.Created.Before(ahead))
	}), err
}

// CredentialsChanged returns when the newest of a component's certificates was written; the zero time if it has none. It ignores those
// that seem to come from the future: the clock was set back, and by its time no container would ever be newer.
func CredentialsChanged(env *step.Env, component string) (time.Time, error) {
	changed, _, err := credentialsChanged(env, component, env.Host.Now())
	return changed, err
}

// credentialsChanged returns when the newest of a component's certificates was written, up to now and later than that.
func credentialsChanged(env *step.Env, component string, now time.Time) (changed, ahead time.Time, err error) {
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.UsedBy != component {
			continue
		}
		info, err := env.Host.Lstat(env.PKI().Files(row)[0])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return changed, ahead, err
		case info.ModTime().After(now):
			ahead = latest(ahead, info.ModTime())
		default:
			changed = latest(changed, info.ModTime())
		}
	}
	return changed, ahead, nil
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
