// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"bytes"
	"context"
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
)

// swap makes components run with their new manifests, all at once. Those that do not come up are put back.
func (t turn) swap(ctx context.Context, env *Env, components []componentUpgrade) error {
	if len(components) == 0 {
		return nil
	}
	env.UI.Printf("Upgrading %s", namesOf(components))
	components, answered, err := t.runWith(ctx, env, components)
	if err == nil || ctx.Err() != nil { // the same command continues after an interruption
		return err
	}
	return t.putBack(ctx, env, components, answered, err)
}

func namesOf(components []componentUpgrade) string {
	var names []string
	for _, c := range components {
		names = append(names, c.name)
	}
	return strings.Join(names, " and ")
}

// runWith writes the manifests and waits until the components run with them.
//
// Left to itself, the kubelet takes 15 to 25 seconds: it waits for the old Pod to end, notices that two seconds later, and
// tries again after ten. So the containers are stopped here, and then the kubelet is restarted: it starts what it finds at
// once. After an interruption at any point, the kubelet does the same by itself.
//
// restarted are the components and what had to restart with them. answered has those that became healthy, in the same order,
// also after an error.
func (t turn) runWith(ctx context.Context, env *Env, components []componentUpgrade) (restarted []componentUpgrade, answered []bool, err error) {
	since := env.Host.Now()
	restarted, err = t.stop(ctx, env, components, nextKubelet)
	answered = make([]bool, len(restarted))
	if err != nil {
		return restarted, answered, err
	}
	if err := restartKubelet(ctx, env); err != nil {
		return restarted, answered, err
	}
	limit := env.Config.Timeouts.UpgradeManifests
	failure := namesOf(restarted) + " did not become healthy after the restart"
	return restarted, answered, diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, c := range restarted {
			group.Go(func() error {
				err := awaitUpgraded(ctx, env, c, since)
				answered[i] = err == nil
				return err
			})
		}
		return group.Wait()
	})
}

// awaitUpgraded waits for a healthy container of the manifest that is there now.
func awaitUpgraded(ctx context.Context, env *Env, c componentUpgrade, since time.Time) error {
	image := imageOf(c.wanted)
	err := env.Host.AwaitContainer(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.name, func(found host.Container) bool {
		return !found.Created.Before(since) && (found.Image == "" || found.Image == image)
	})
	if err != nil {
		return errors.Wrapf(err, "the kubelet has not started %s with image %s; see `journalctl -u kubelet` and /var/log/pods", c.name, image)
	}
	return waitComponent(ctx, env, c.name)
}

// restoredError is the failure of an upgrade after which everything on this node runs again.
type restoredError struct{ error }

func (e *restoredError) Unwrap() error { return e.error }

// putBack restores the manifests of components that did not come up. What an interrupted run has replaced stays: what was
// there before it is in the backup of that run. answered are the components that were healthy meanwhile. failed is why; it
// is returned with what was done about it.
func (t turn) putBack(ctx context.Context, env *Env, components []componentUpgrade, answered []bool, failed error) error {
	var restored []componentUpgrade
	etcdStays := false
	for i, c := range components {
		replaced, err := wasReplaced(env, c)
		switch {
		case err != nil:
			return errors.WithMessagef(failed, "cannot tell which static Pods were replaced, so none was put back (%v)", err)
		case !replaced:
		case c.name == manifests.EtcdName && !etcdMayGoBack(ctx, env, c, answered[i]):
			etcdStays = true
		default:
			c.wanted = c.before
			restored = append(restored, c)
		}
	}
	if len(restored) == 0 {
		return failed
	}
	env.UI.Warnf("%s did not come up; putting back what ran before", namesOf(components))
	if _, _, err := t.runWith(ctx, env, restored); err != nil {
		return fault.WithRemedy(errors.WithMessagef(failed, "and putting back what ran before failed, too (%v)", err),
			"the previous manifests are in "+backupRoot(env)+"; `slipway diagnose` says what is wrong")
	}
	said := "what ran before was put back: " + imagesOf(restored)
	if etcdStays {
		said += "; etcd stays at its new version, because the old one may not be able to read its data any more"
	}
	return &restoredError{errors.WithMessage(failed, said)}
}

// wasReplaced reports whether this run has written another manifest of a component.
func wasReplaced(env *Env, c componentUpgrade) (bool, error) {
	if c.before == nil || manifests.SameStaticPod(c.before, c.wanted) {
		return false, nil
	}
	now, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, c.name))
	return !bytes.Equal(now, c.before), err
}

// etcdMayGoBack reports whether etcd may be replaced by the one before. One of another minor version may not once it has
// opened its data, which may no longer be readable for the older one: so it must not have answered, and it must have ended.
// If that cannot be seen, it stays.
func etcdMayGoBack(ctx context.Context, env *Env, c componentUpgrade, answered bool) bool {
	if before := etcdMinor(c.before); before != "" && before == etcdMinor(c.wanted) || imageOf(c.before) == imageOf(c.wanted) {
		return true
	}
	if answered {
		return false
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, c.name)
	return err == nil && !slices.ContainsFunc(running, func(found host.Container) bool { return found.Image != imageOf(c.before) })
}

// isHealthy reports whether a component answers now.
func isHealthy(ctx context.Context, env *Env, component string) bool {
	probe, err := componentProbe(env, component)
	return err == nil && env.Host.Probe(ctx, probe) == nil
}

func imagesOf(components []componentUpgrade) string {
	var images []string
	for _, c := range components {
		images = append(images, imageOf(c.wanted))
	}
	return strings.Join(images, ", ")
}
