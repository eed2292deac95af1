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
	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// WithSigner returns the controller manager with a manifest that signs with a file of its own if ca.crt holds several CAs.
// Writing it makes the kubelet restart the component. If somebody has chosen another file, the manifest stays.
func WithSigner(env *step.Env) (ComponentUpgrade, error) {
	c := ComponentUpgrade{Name: manifests.ControllerManagerName}
	have, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, c.Name))
	if err != nil {
		return c, err
	}
	c.Before = have
	c.Wanted, err = env.PKI().WithSigner(have)
	return c, err
}

// RestartAll restarts all stale components, except etcd if it has to stay, and waits for them.
func (t Turn) RestartAll(ctx context.Context, env *step.Env, etcdStays bool) error {
	names := slices.DeleteFunc(StaticPods(env), func(name string) bool { return name == manifests.EtcdName && etcdStays })
	api := 0
	for api < len(names) && (names[api] == manifests.EtcdName || names[api] == manifests.APIServerName) {
		api++
	}
	if err := t.RestartStale(ctx, env, names[:api]...); err != nil {
		return err
	}
	return t.RestartStale(ctx, env, names[api:]...)
}

// StaticPods names this host's components, etcd first. Without a known cluster configuration, etcd may be external.
func StaticPods(env *step.Env) []string {
	return slices.DeleteFunc(manifests.Components(env.Config), func(name string) bool {
		_, err := env.Host.Lstat(thisnode.StaticPodPath(env.Config, name))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// RestartStale restarts the stale ones among components, and waits for all of them.
func (t Turn) RestartStale(ctx context.Context, env *step.Env, components ...string) error {
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
	if stale, err = t.stop(ctx, env, stale, thisKubelet); err != nil {
		return err
	}
	for _, c := range stale {
		if began.After(since[c.Name]) {
			since[c.Name] = began
		}
	}
	for _, name := range components {
		if !Contains(stale, name) { // may have crashed with its old certificate; on failure, the restart only takes longer
			_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, name)
		}
	}
	return awaitAllRestarted(ctx, env, since)
}

// awaitAllRestarted waits until each component is healthy, in a container created after its time in since.
func awaitAllRestarted(ctx context.Context, env *step.Env, since map[string]time.Time) error {
	limit := env.Config.Timeouts.ControlPlaneComponentHealthCheck
	names := slices.Sorted(maps.Keys(since))
	failure := strings.Join(names, " and ") + " did not become healthy after the restart"
	return diagnose.Guard(ctx, env.Host, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, name := range names {
			group.Go(func() error {
				if err := awaitRestarted(ctx, env, name, since[name]); err != nil {
					return err
				}
				return WaitComponent(ctx, env, name)
			})
		}
		return group.Wait()
	})
}

// StaleComponents returns the components whose containers are older than their files. Their manifests stay, except a controller
// manager's that couldn't start with several CAs.
func StaleComponents(ctx context.Context, env *step.Env, names ...string) (list []ComponentUpgrade, err error) {
	for _, name := range names {
		c := ComponentUpgrade{Name: name}
		if name == manifests.ControllerManagerName {
			c, err = WithSigner(env)
		} else {
			c.Before, err = host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, name))
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

// StaleContainers returns a component's containers that are older than its files.
func StaleContainers(ctx context.Context, env *step.Env, component string) ([]host.Container, error) {
	changed, err := CredentialsChanged(env, component)
	if err != nil {
		return nil, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return slices.DeleteFunc(running, func(c host.Container) bool { return !c.Created.Before(changed) }), err
}

func awaitRestarted(ctx context.Context, env *step.Env, component string, changed time.Time) error {
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component,
		func(c host.Container) bool { return !c.Created.Before(changed) })
	return errors.Wrapf(err, "the kubelet has not restarted %s; see `journalctl -u kubelet` and /var/log/pods", component)
}

// CredentialsChanged returns the newest write time of the component's files.
func CredentialsChanged(env *step.Env, component string) (time.Time, error) {
	var newest time.Time
	for _, row := range certs.Specs(env.Config) {
		if !row.Renewable() || row.UsedBy != component {
			continue
		}
		info, err := env.Host.Lstat(env.PKI().Files(row)[0])
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return newest, err
		case info.ModTime().After(newest):
			newest = info.ModTime()
		}
	}
	return newest, nil
}
