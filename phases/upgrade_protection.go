// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package phases

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// protectiveFlags are the beginnings of the names of flags that guard data or access: encryption, audit, admission,
// authentication and authorization, in all components. Without one of them, stored Secrets can't be read, or somebody may do
// more than before.
var protectiveFlags = []string{
	"admission-control", "anonymous-auth", "api-audiences", "audit-", "auth-token", "authentication-", "authorization-", "auto-tls",
	"cert-file", "cipher-suites", "client-ca-file", "client-cert-", "client-crl-file", "disable-admission-plugins",
	"enable-admission-plugins", "enable-bootstrap-token-auth", "encryption-provider-config", "key-file",
	"kubelet-certificate-authority", "oidc-", "peer-auto-tls", "peer-cert-", "peer-client-cert-", "peer-crl-file", "peer-key-file",
	"peer-skip-client-san-verification", "peer-trusted-ca-file", "requestheader-", "service-account-", "tls-", "token-auth-file",
	"trusted-ca-file", "use-service-account-credentials",
}

// successors are flags that take the place of others, by the beginnings of their names.
var successors = map[string]string{"anonymous-auth": "authentication-config", "authorization-": "authorization-config", "oidc-": "authentication-config"}

// protection is what an upgrade would drop of a static Pod's protective flags, and of the volumes with the files that such flags
// name.
type protection struct {
	flags  []flag
	mounts []corev1.VolumeMount
}

// lostProtection compares the static Pod that is there with the one that the upgrade writes.
func lostProtection(env *Env, e *editedPod, view manifests.HostView, have []byte) (lost protection, err error) {
	_, before, wanted, err := e.pods()
	if err != nil {
		return lost, err
	}
	mine, err := decodePod(have)
	if err != nil {
		return lost, err
	}
	unpatched := newStaticPod(env.Config, e.component, view, membersOf(env, e.component))
	made, next, plain := podFlags(before), podFlags(wanted), podFlags(unpatched)
	settled := func(name string) bool { // by the configuration, or by today's patches: that's a change, and no loss
		extra, _ := extras(env.Config, e.component)
		return slices.ContainsFunc(extra, func(a config.Arg) bool { return a.Name == name }) || replaced(flagsNamed(plain, name), flagsNamed(next, name))
	}
	var there []flag
	for _, f := range podFlags(mine) {
		if f.begins(slices.Values(protectiveFlags)) == "" {
			continue
		}
		there = append(there, f)
		if slices.ContainsFunc(slices.Concat(next, made), f.same) || slices.ContainsFunc(next, f.movedTo) {
			continue
		}
		successor := successors[f.begins(maps.Keys(successors))]
		if !settled(f.name) && !settled(successor) || f.shortened(flagsNamed(next, f.name)) {
			lost.flags = append(lost.flags, f)
		}
	}
	files := filesOf(env, mine, there)
	for _, m := range mine.Spec.Containers[0].VolumeMounts {
		stays := hasMount(wanted, mine, m) || hasMount(before, mine, m) || mounted(env.Config, e.component, m.MountPath)
		if !stays && slices.ContainsFunc(files, within(m.MountPath)) {
			lost.mounts = append(lost.mounts, m)
		}
	}
	return lost, nil
}

// mounted reports whether the ClusterConfiguration mounts something at a path.
func mounted(n *config.Node, component, path string) bool {
	_, volumes := extras(n, component)
	return slices.ContainsFunc(volumes, func(v config.HostPathMount) bool { return v.MountPath == path })
}

// extras are what the ClusterConfiguration adds to a component.
func extras(n *config.Node, component string) ([]config.Arg, []config.HostPathMount) {
	c := &n.Cluster
	switch component {
	case manifests.APIServerName:
		return c.APIServer.ExtraArgs, c.APIServer.ExtraVolumes
	case manifests.ControllerManagerName:
		return c.ControllerManager.ExtraArgs, c.ControllerManager.ExtraVolumes
	case manifests.SchedulerName:
		return c.Scheduler.ExtraArgs, c.Scheduler.ExtraVolumes
	}
	if c.Etcd.Local == nil {
		return nil, nil
	}
	return c.Etcd.Local.ExtraArgs, nil
}

// without is e as far as it is about other things; nil if there are none.
func (p protection) without(e *editedPod) (*editedPod, error) {
	if e == nil || len(p.flags)+len(p.mounts) == 0 {
		return e, nil
	}
	have, before, _, err := e.pods()
	if err != nil {
		return nil, err
	}
	p.takenFrom(have, before.Spec.Containers[0].Command)
	rest := *e
	if rest.have, err = manifests.Encode(have); err != nil || manifests.SameStaticPod(rest.have, e.before) {
		return nil, err
	}
	return &rest, nil
}

// takenFrom removes it from a Pod, whose flags were these before.
func (p protection) takenFrom(pod *corev1.Pod, was []string) {
	c := &pod.Spec.Containers[0]
	for _, f := range p.flags {
		for _, word := range f.words {
			if i := slices.Index(c.Command, word); i >= 0 {
				c.Command = slices.Delete(c.Command, i, i+1)
			}
		}
		for _, before := range flagsNamed(flagsOf(was), f.name) {
			if !slices.ContainsFunc(flagsOf(c.Command), before.same) {
				c.Command = append(c.Command, before.words...)
			}
		}
	}
	for _, m := range p.mounts {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(other corev1.VolumeMount) bool { return other.MountPath == m.MountPath })
		used := func(other corev1.VolumeMount) bool { return other.Name == m.Name }
		if !slices.ContainsFunc(c.VolumeMounts, used) {
			pod.Spec.Volumes = slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		}
	}
}

const protectionCheck = preflight.StaticPodProtection

// findings are errors that no flag ignores.
func (p protection) findings(component string) []preflight.Finding {
	var lost []string
	for _, f := range p.flags {
		lost = append(lost, strings.Join(f.words, " "))
	}
	for _, m := range p.mounts {
		lost = append(lost, "the volume at "+m.MountPath)
	}
	if len(lost) == 0 {
		return nil
	}
	f := finding(protectionCheck, preflight.Error,
		"keep it in a patch (--patches), which `slipway upgrade plan` prints, or in extraArgs and extraVolumes of the ClusterConfiguration; "+
			"to give it up, take it out of the static Pod first, and see that the component works without it",
		"the upgrade would drop protection of data or access from the static Pod of %s: %s", component, strings.Join(lost, ", "))
	f.Final = true
	return []preflight.Finding{f}
}

// refuseLoss returns an error if the upgrade would drop protection, for runs of the phase without the checks.
func refuseLoss(ctx context.Context, env *Env) error {
	found := slices.DeleteFunc(staticPodEdits(ctx, env), func(f preflight.Finding) bool { return !f.Final })
	return preflight.Report{Errors: found}.Err()
}
