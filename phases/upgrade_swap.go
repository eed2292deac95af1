// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
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
	err := runWith(ctx, env, components)
	if err == nil || ctx.Err() != nil { // the same command continues after an interruption
		return err
	}
	return putBack(ctx, env, components, err)
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
func runWith(ctx context.Context, env *Env, components []componentUpgrade) error {
	since := env.Host.Now()
	for _, c := range slices.Backward(components) { // the API server before etcd
		if err := replace(ctx, env, c); err != nil {
			return err
		}
	}
	if err := restartKubelet(ctx, env); err != nil {
		return err
	}
	limit := env.Config.Timeouts.UpgradeManifests
	failure := namesOf(components) + " did not become healthy after the upgrade"
	return diagnose.Guard(ctx, env.Host, limit, env.nodeTarget(), failure, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, c := range components {
			group.Go(func() error { return awaitUpgraded(ctx, env, c, since) })
		}
		return group.Wait()
	})
}

// replace writes a component's manifest and stops the containers that were made from the one before. What depends on it has
// been stopped already.
func replace(ctx context.Context, env *Env, c componentUpgrade) error {
	prepareStop(ctx, env, c.name)
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

// putBack restores the manifests of components that did not come up. An etcd that has served with a newer version stays:
// an older one may not be able to read its data any more. What an interrupted run has replaced stays as well: what was
// there before it is in the backup of that run. failed is why; it is returned with what was done about it.
func putBack(ctx context.Context, env *Env, components []componentUpgrade, failed error) error {
	restored := slices.DeleteFunc(slices.Clone(components), func(c componentUpgrade) bool {
		return c.before == nil || manifests.SameStaticPod(c.before, c.wanted) || c.name == manifests.EtcdName && imageOf(c.before) != imageOf(c.wanted) && isHealthy(ctx, env, c.name)
	})
	if len(restored) == 0 {
		return failed
	}
	env.UI.Warnf("%s did not come up; putting back what ran before", namesOf(components))
	for i := range restored {
		restored[i].wanted = restored[i].before
	}
	said := "what ran before was put back: " + imagesOf(restored)
	if len(restored) < len(components) {
		said += "; etcd stays at its new version, because its data may no longer be readable for the old one"
	}
	if err := runWith(ctx, env, restored); err != nil {
		return fault.WithRemedy(errors.WithMessagef(failed, "and putting back what ran before failed, too (%v)", err),
			"the manifests of before are in "+backupRoot(env)+"; `slipway diagnose` says what is wrong")
	}
	return errors.WithMessage(failed, said)
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
