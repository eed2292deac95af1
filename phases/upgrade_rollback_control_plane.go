// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// putBackControlPlane swaps the static Pods as an upgrade does.
func (r *Rollback) putBackControlPlane(ctx context.Context, env *Env) error {
	mine, err := takeTurnIfAnswered(ctx, env, forRollback)
	if err != nil {
		return err
	}
	return mine.finish(ctx, env, r.putBackInTurn(ctx, env, mine))
}

func (r *Rollback) putBackInTurn(ctx context.Context, env *Env, mine turn) error {
	if err := r.restoreData(ctx, env, mine); err != nil {
		return err
	}
	components, err := r.components(ctx, env)
	if err != nil {
		return err
	}
	first, then := split(components)
	for _, group := range [][]componentUpgrade{first, then} {
		if err := r.swap(ctx, env, mine, group); err != nil {
			return err
		}
	}
	if len(components) > 0 { // the kubelet has been restarted
		return nil
	}
	if err := r.startKubelet(ctx, env); err != nil {
		mine.stops() // the kubelet, perhaps
		return err
	}
	return nil
}

// swap makes components run with their previous manifests. If they do not come up, what ran before the rollback is put back,
// but only if it worked: otherwise it is what the user wants to leave. After etcd's data was restored, there is no way but on.
func (r *Rollback) swap(ctx context.Context, env *Env, mine turn, components []componentUpgrade) error {
	if len(components) == 0 {
		return nil
	}
	env.UI.Printf("Putting back %s: %s", namesOf(components), imagesOf(components))
	worked := r.restore == nil && !slices.ContainsFunc(components, func(c componentUpgrade) bool { return !isHealthy(ctx, env, c.name) })
	restarted, answered, err := mine.runWith(ctx, env, components)
	if err == nil || ctx.Err() != nil || !worked {
		return err
	}
	return mine.putBack(ctx, env, restarted, answered, err)
}

// quorumCheck asks whether the other members of etcd can do without this one, if it is to go back. After etcd's data was
// restored, there are no others.
func (r *Rollback) quorumCheck(env *Env) []preflight.Check {
	q := quorumQuestion(env)
	ask := q.Ask
	q.Ask = func(ctx context.Context) []preflight.Finding {
		if r.restore != nil || r.before[manifests.EtcdName] == nil || r.keepsEtcd(env, manifests.EtcdName) {
			return nil
		}
		if _, right, err := r.component(ctx, env, manifests.EtcdName); right && err == nil {
			return nil
		}
		return ask(ctx)
	}
	return preflight.Questions([]preflight.Question{q})
}

// components are the ones that do not run with their previous manifests, etcd first.
func (r *Rollback) components(ctx context.Context, env *Env) ([]componentUpgrade, error) {
	var list []componentUpgrade
	for _, name := range manifests.Components(env.Config) {
		if r.before[name] == nil {
			continue
		}
		if r.keepsEtcd(env, name) {
			env.UI.Printf("%s", r.whyEtcdStays(env))
			continue
		}
		c, right, err := r.component(ctx, env, name)
		if err != nil {
			return nil, err
		}
		if !right {
			list = append(list, c)
		}
	}
	return list, nil
}

// component reports whether a component runs with its previous manifest. One that does not run may have crashed in an
// interrupted run: a swap makes the kubelet start it without delay.
func (r *Rollback) component(ctx context.Context, env *Env, name string) (c componentUpgrade, right bool, err error) {
	c.name, c.wanted = name, r.before[name]
	path := thisnode.StaticPodPath(env.Config, name)
	if c.before, err = host.ReadIfExists(env.Host, path); err != nil || c.before == nil {
		return c, false, err
	}
	info, err := env.Host.Lstat(path)
	if err != nil {
		return c, false, err
	}
	running, err := env.Host.Containers(ctx, env.Config.CRISocket, metav1.NamespaceSystem, name)
	if err != nil {
		return c, false, err
	}
	fresh := slices.ContainsFunc(running, func(c host.Container) bool { return !c.Created.Before(info.ModTime()) })
	return c, fresh && manifests.SameStaticPod(c.before, c.wanted), nil
}

// keepsEtcd reports whether a component is an etcd that must stay at its newer minor version: once all members have run that,
// the previous one does not start with their data. The previous API server works with a newer etcd.
func (r *Rollback) keepsEtcd(env *Env, component string) bool {
	if component != manifests.EtcdName || r.restore != nil || r.before[component] == nil {
		return false
	}
	now, err := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, component))
	if err != nil || now == nil {
		return false
	}
	minor := etcdMinor(now)
	return imageOf(now) != imageOf(r.before[component]) && (minor == "" || minor != etcdMinor(r.before[component]))
}

func (r *Rollback) whyEtcdStays(env *Env) string {
	now, _ := host.ReadIfExists(env.Host, thisnode.StaticPodPath(env.Config, manifests.EtcdName))
	return "etcd stays at " + upgrading.TagOf(imageOf(now)) + ": " + upgrading.TagOf(imageOf(r.before[manifests.EtcdName])) +
		" may not start with its data any more, and Kubernetes " + r.from() + " works with it (--restore-etcd restores the snapshot from before the upgrade)"
}

// etcdMinor is the minor version of etcd that a static Pod runs, such as 3.6; empty if the image's tag is not a version.
func etcdMinor(manifest []byte) string { return minorOf(imageOf(manifest)) }

// minorOf is the minor version in an image's tag, such as 3.6; empty if it does not say.
func minorOf(image string) string {
	v, err := version.ParseGeneric(upgrading.TagOf(image))
	if err != nil {
		return ""
	}
	return version.MajorMinor(v.Major(), v.Minor()).String()
}
