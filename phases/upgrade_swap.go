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
	"github.com/slipway-k8s/slipway/internal/etcdmember"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// swap makes components run with their new manifests, all at once. Those that do not come up are put back.
func swap(ctx context.Context, env *Env, components []componentUpgrade) error {
	if len(components) == 0 {
		return nil
	}
	env.UI.Printf("Upgrading %s", namesOf(components))
	answered, err := runWith(ctx, env, components)
	if err == nil || ctx.Err() != nil { // the same command continues after an interruption
		return err
	}
	return putBack(ctx, env, components, answered, err)
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
// once. An interruption at any point leaves a kubelet that runs, and that does the same by itself.
//
// answered has the components that became healthy, in the order of components, also after an error.
func runWith(ctx context.Context, env *Env, components []componentUpgrade) (answered []bool, err error) {
	answered = make([]bool, len(components))
	since := env.Host.Now()
	for _, c := range slices.Backward(components) { // the API server before etcd
		if err := replace(ctx, env, c); err != nil {
			return answered, err
		}
	}
	if err := restartKubelet(ctx, env); err != nil {
		return answered, err
	}
	limit := env.Config.Timeouts.UpgradeManifests
	failure := namesOf(components) + " did not become healthy after the upgrade"
	return answered, diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for i, c := range components {
			group.Go(func() error {
				err := awaitUpgraded(ctx, env, c, since)
				answered[i] = err == nil
				return err
			})
		}
		return group.Wait()
	})
}

// replace writes a component's manifest and stops the containers that were made from the one before. What depends on it has
// been stopped already.
func replace(ctx context.Context, env *Env, c componentUpgrade) error {
	prepareStop(ctx, env, c.name)
	if ctx.Err() != nil { // before the kubelet is told to replace it
		return context.Cause(ctx)
	}
	grace := graceOf(env, c.name) // by the manifest that it runs with
	file := ownership.File{Path: thisnode.StaticPodPath(env.Config, c.name), Data: c.wanted, Mode: 0o600}
	if _, err := file.Write(env.Host); err != nil {
		return err
	}
	return stopContainers(ctx, env, c.name, grace)
}

// giveUpLead makes another member of etcd the leader before this one stops, so that the cluster need not elect one. This
// node's API server has stopped by then: its writes would fail while the leader changes.
func giveUpLead(ctx context.Context, env *Env) error {
	member, found := etcdmember.Local(env.Host, env.Config)
	if !found {
		return nil
	}
	moved, err := env.Etcd.MoveLeader(ctx, member.PeerURL)
	if moved {
		env.UI.Printf("Another member leads etcd now")
	}
	return err
}

func stopContainers(ctx context.Context, env *Env, component string, grace time.Duration) error {
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	if err != nil {
		return err
	}
	for _, container := range running {
		if err := env.Host.StopContainer(ctx, env.Config.CRISocket, container.ID, grace); err != nil {
			return err
		}
	}
	// The kubelet delays the start of a component that has crashed. If this fails, as when the kubelet removes the same
	// container, the start only takes longer.
	_ = env.Host.RemoveExited(ctx, env.Config.CRISocket, metav1.NamespaceSystem, component)
	return nil
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
func putBack(ctx context.Context, env *Env, components []componentUpgrade, answered []bool, failed error) error {
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
	if _, err := runWith(ctx, env, restored); err != nil {
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
