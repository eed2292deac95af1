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
	"github.com/slipway-k8s/slipway/internal/thisnode"
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
	// contested name other files than the ClusterConfiguration does now. It may have said so before, or
	// somebody may have edited the static Pod, so they count as edits.
	contested []flag
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
	of, err := whose(env, thisnode.StaticPodPath(env.Config, e.component))
	if err != nil {
		return lost, err
	}
	unpatched := newStaticPod(env.Config, e.component, view, membersOf(env, e.component))
	made, next, plain := podFlags(before), podFlags(wanted), podFlags(unpatched)
	extra, _ := extras(env.Config, e.component)
	configured := func(name string) bool {
		return slices.ContainsFunc(extra, func(a config.Arg) bool { return a.Name == name })
	}
	patched := func(name string) bool { return replaced(flagsNamed(plain, name), flagsNamed(next, name)) }
	settled := func(name string) bool { return configured(name) || patched(name) } // that's a change, and no loss
	there := slices.DeleteFunc(podFlags(mine), func(f flag) bool { return f.begins(slices.Values(protectiveFlags)) == "" })
	lost.mounts = lostMounts(env, e.component, before, wanted, mine, there)
	for _, f := range there {
		successor := successors[f.begins(maps.Keys(successors))]
		switch {
		case f.staysIn(env, mine, wanted), f.name != encryptionFlag && (f.isIn(wanted) || slices.ContainsFunc(made, f.same)):
		case f.isIn(wanted) && slices.ContainsFunc(lost.mounts, func(m corev1.VolumeMount) bool { return within(m.MountPath)(f.value) }):
		case f.name == encryptionFlag, !settled(f.name) && !settled(successor), f.shortened(flagsNamed(next, f.name)):
			lost.flags = append(lost.flags, f)
		case f.namesPolicy() && configured(f.name) && !patched(f.name) && of != asMade:
			lost.contested = append(lost.contested, f)
		}
	}
	return lost, nil
}

// lostMounts are the volumes of the static Pod mine with files that its protective flags need, and that wanted doesn't have. One that
// before has, or the configuration, may be changed; but encryption needs its file, with the same contents, and what that names.
func lostMounts(env *Env, component string, before, wanted, mine *corev1.Pod, flags []flag) (lost []corev1.VolumeMount) {
	needed := func(flags []flag) []string {
		return slices.DeleteFunc(filesOf(env, mine, flags), func(file string) bool {
			return slices.ContainsFunc(flags, func(f flag) bool { return f.value == file && !f.isIn(wanted) && f.staysIn(env, mine, wanted) })
		})
	}
	encryption := flagsNamed(flags, encryptionFlag)
	files, encrypted := needed(flags), needed(encryption)
	for _, m := range mine.Spec.Containers[0].VolumeMounts {
		in := within(m.MountPath)
		stays := hasMount(wanted, mine, m)
		if !stays && (hasMount(before, mine, m) || mounted(env.Config, component, m.MountPath)) {
			stays = !slices.ContainsFunc(encryption, func(f flag) bool { return in(f.value) && !f.staysIn(env, mine, wanted) }) &&
				!slices.ContainsFunc(encrypted, func(file string) bool {
					_, found := thisnode.OnHost(wanted, file)
					return in(file) && !found
				})
		}
		if !stays && slices.ContainsFunc(files, in) {
			lost = append(lost, m)
		}
	}
	return lost
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
	p.contested = nil
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
	for _, f := range slices.Concat(p.flags, p.contested) {
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
			"to give it up, take it out of the static Pod first, or put the new value there, and see that the component works and reads its data",
		"the upgrade would drop protection of data or access from the static Pod of %s: %s", component, strings.Join(lost, ", "))
	f.Final = true
	return []preflight.Finding{f}
}

// refuseLoss returns an error if the upgrade would drop protection, for runs of the phase without the checks.
func refuseLoss(ctx context.Context, env *Env) error {
	found := slices.DeleteFunc(staticPodEdits(ctx, env), func(f preflight.Finding) bool { return !f.Final })
	return preflight.Report{Errors: found}.Err()
}
