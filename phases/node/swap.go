// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/diagnose"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// ComponentUpgrade is a component with its next manifest.
type ComponentUpgrade struct {
	Name   string
	Wanted []byte // the next manifest
	Before []byte // the present manifest; nil for none
	// Stale are the running containers that weren't made from Wanted.
	Stale []host.Container
	// answered reports whether it was healthy after it had started with Wanted.
	answered bool
}

func Contains(components []ComponentUpgrade, name string) bool {
	return slices.ContainsFunc(components, named(name))
}

func named(name string) func(ComponentUpgrade) bool {
	return func(c ComponentUpgrade) bool { return c.Name == name }
}

// Split separates the components of the API from its clients, which restart after it.
func Split(components []ComponentUpgrade) (groups [2][]ComponentUpgrade) {
	for _, c := range components {
		group := 1
		if c.Name == manifests.EtcdName || c.Name == manifests.APIServerName {
			group = 0
		}
		groups[group] = append(groups[group], c)
	}
	return groups
}

// Swap makes components run with their new manifests, all at once. If they don't come up, it puts the old ones back.
func (t Turn) Swap(ctx context.Context, env *step.Env, components []ComponentUpgrade) error {
	if len(components) == 0 {
		return nil
	}
	env.UI.Printf("Upgrading %s", NamesOf(components))
	components, err := t.RunWith(ctx, env, components)
	if err == nil || ctx.Err() != nil { // the same command continues after an interruption
		return err
	}
	return t.PutBack(ctx, env, components, err)
}

func NamesOf(components []ComponentUpgrade) string {
	var names []string
	for _, c := range components {
		names = append(names, c.Name)
	}
	return strings.Join(names, " and ")
}

// RunWith writes the manifests and waits until the components run with them.
//
// Left to itself, the kubelet takes 15 to 25 seconds: it waits for the old Pod to end, notices that two seconds later, and tries
// again after ten. So RunWith stops the containers, then restarts the kubelet, which starts the new Pods at once. After an
// interruption at any point, the kubelet does the same by itself.
//
// restarted has the components and everything that had to restart with them, each with its answer, even after an error.
func (t Turn) RunWith(ctx context.Context, env *step.Env, components []ComponentUpgrade) (restarted []ComponentUpgrade, err error) {
	since := env.Host.Now()
	restarted, err = t.stop(ctx, env, components, nextKubelet)
	if err != nil {
		return restarted, err
	}
	if err := RestartKubelet(ctx, env); err != nil {
		return restarted, err
	}
	limit := env.Config.Timeouts.UpgradeManifests
	failure := NamesOf(restarted) + " did not become healthy after the restart"
	return restarted, diagnose.Guard(ctx, env.Host, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, c := range restarted {
			group.Go(func() error {
				err := awaitUpgraded(ctx, env, c, since)
				restarted[i].answered = err == nil
				return err
			})
		}
		return group.Wait()
	})
}

// awaitUpgraded waits for a healthy container of the wanted manifest.
func awaitUpgraded(ctx context.Context, env *step.Env, c ComponentUpgrade, since time.Time) error {
	image := ImageOf(c.Wanted)
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.Name, func(found host.Container) bool {
		return !found.Created.Before(since) && (found.Image == "" || found.Image == image)
	})
	if err != nil {
		return errors.Wrapf(err, "the kubelet has not started %s with image %s; see `journalctl -u kubelet` and /var/log/pods", c.Name, image)
	}
	return WaitComponent(ctx, env, c.Name)
}

// RestoredError reports a failed upgrade after which everything on this node runs again.
type RestoredError struct{ error }

func (e *RestoredError) Unwrap() error { return e.error }

// PutBack restores the manifests of components that didn't come up, except those an interrupted run replaced: that run's backup
// has their originals. It returns failed with a report.
func (t Turn) PutBack(ctx context.Context, env *step.Env, components []ComponentUpgrade, failed error) error {
	var restored []ComponentUpgrade
	etcdStays := false
	for _, c := range components {
		replaced, err := wasReplaced(env, c)
		switch {
		case err != nil:
			return errors.WithMessagef(failed, "cannot tell which static Pods were replaced, so none was put back (%v)", err)
		case !replaced:
		case c.Name == manifests.EtcdName && !etcdMayGoBack(ctx, env, c):
			etcdStays = true
		default:
			c.Wanted = c.Before
			restored = append(restored, c)
		}
	}
	if len(restored) == 0 {
		return failed
	}
	env.UI.Warnf("%s did not come up; putting back the previous static Pods", NamesOf(components))
	if _, err := t.RunWith(ctx, env, restored); err != nil {
		return fault.WithRemedy(errors.WithMessagef(failed, "and putting back the previous static Pods failed, too (%v)", err),
			"the previous manifests are in "+BackupRoot(env)+"; `slipway diagnose` says what is wrong")
	}
	said := "the previous static Pods were put back: " + ImagesOf(restored)
	if etcdStays {
		said += "; etcd stays at its new version, because the old one may not be able to read its data any more"
	}
	return &RestoredError{errors.WithMessage(failed, said)}
}

// wasReplaced reports whether this run has written a different manifest.
func wasReplaced(env *step.Env, c ComponentUpgrade) (bool, error) {
	if c.Before == nil || manifests.SameStaticPod(c.Before, c.Wanted) {
		return false, nil
	}
	now, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, c.Name))
	return !bytes.Equal(now, c.Before), err
}

// etcdMayGoBack reports whether the previous etcd may return. An etcd of another minor version may have made its data unreadable
// for the previous once it has opened it, so it must not have answered, and must have ended. If in doubt, it stays.
func etcdMayGoBack(ctx context.Context, env *step.Env, c ComponentUpgrade) bool {
	if before := EtcdMinor(c.Before); before != "" && before == EtcdMinor(c.Wanted) || ImageOf(c.Before) == ImageOf(c.Wanted) {
		return true
	}
	if c.answered {
		return false
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.Name)
	return err == nil && !slices.ContainsFunc(running, func(found host.Container) bool { return found.Image != ImageOf(c.Before) })
}

func ImagesOf(components []ComponentUpgrade) string {
	var images []string
	for _, c := range components {
		images = append(images, ImageOf(c.Wanted))
	}
	return strings.Join(images, ", ")
}

// BackupRoot is the directory of upgrades' backups.
func BackupRoot(env *step.Env) string { return filepath.Join(env.Config.Paths.Kubernetes, "tmp") }
