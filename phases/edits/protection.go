// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// successors maps prefixes of flag names to the flags that replace them.
var successors = map[string]string{"anonymous-auth": "authentication-config", "authorization-": "authorization-config", "oidc-": "authentication-config"}

// protection has a static Pod's protective flags, and the volumes with the files these name, that an upgrade would drop.
type protection struct {
	flags  []manifests.Flag
	mounts []corev1.VolumeMount
	// contested flags name other files than the ClusterConfiguration. They count as edits, though it may have named them before.
	contested []manifests.Flag
	// moved says which directories of etcd's data would change.
	moved []string
}

// lostProtection compares the current static Pod, mine, with the upgrade's.
func lostProtection(env *step.Env, e *editedPod, view manifests.HostView, mine *corev1.Pod) (lost protection, err error) {
	_, before, wanted := e.pods()
	of, err := backup.DetectEdit(env, env.Config.Paths.StaticPod(e.component))
	if err != nil {
		return lost, err
	}
	unpatched := node.NewStaticPod(env.Config, e.component, view, node.InitialMembers(env, e.component))
	made, next, plain := manifests.PodFlags(before), manifests.PodFlags(wanted), manifests.PodFlags(unpatched)
	configured := func(name string) bool {
		return slices.ContainsFunc(env.Config.Cluster.Component(e.component).ExtraArgs, func(a config.Arg) bool { return a.Is(name) })
	}
	patched := func(name string) bool {
		return flagsReplaced(manifests.FlagsNamed(plain, name), manifests.FlagsNamed(next, name))
	}
	settled := func(name string) bool { return configured(name) || patched(name) } // a change, not a loss
	there := slices.DeleteFunc(manifests.PodFlags(mine), func(f manifests.Flag) bool { return f.Begins(slices.Values(manifests.ProtectiveFlags)) == "" })
	c := comparison{env, e.component, mine, before, wanted}
	lost.mounts, lost.moved = c.lostMounts(there), c.moved()
	for _, f := range there {
		successor := successors[f.Begins(maps.Keys(successors))]
		switch {
		case c.stays(f), f.Name != manifests.EncryptionFlag && (f.IsIn(wanted) || slices.ContainsFunc(made, f.Same)):
		case f.IsIn(wanted) && slices.ContainsFunc(lost.mounts, func(m corev1.VolumeMount) bool { return manifests.Within(m.MountPath, f.Value) }):
		case f.Name == manifests.EncryptionFlag, !settled(f.Name) && !settled(successor), shortened(f, manifests.FlagsNamed(next, f.Name)):
			lost.flags = append(lost.flags, f)
		case f.NamesPolicy() && configured(f.Name) && !patched(f.Name) && of != backup.Unedited:
			lost.contested = append(lost.contested, f)
		}
	}
	return lost, nil
}

// comparison is of a component's current static Pod, mine, with the Pod as it was made and the upgrade's.
type comparison struct {
	env                  *step.Env
	component            string
	mine, before, wanted *corev1.Pod
}

func (c *comparison) stays(f manifests.Flag) bool {
	return node.FlagPreserved(c.env, f, c.mine, c.wanted)
}

// lostMounts returns mine's volumes that have files for its protective flags and that wanted lacks. A mount that before or the
// configuration has may change, unless encryption needs it: its file must keep its contents, and the files it names must stay.
func (c *comparison) lostMounts(flags []manifests.Flag) (lost []corev1.VolumeMount) {
	needed := func(flags []manifests.Flag) []string {
		return slices.DeleteFunc(filesOf(c.env, c.mine, flags), func(file string) bool {
			return slices.ContainsFunc(flags, func(f manifests.Flag) bool { return f.Value == file && !f.IsIn(c.wanted) && c.stays(f) })
		})
	}
	configured := func(path string) bool {
		volumes := c.env.Config.Cluster.Component(c.component).ExtraVolumes
		return slices.ContainsFunc(volumes, func(v config.HostPathMount) bool { return v.MountPath == path })
	}
	encryption := manifests.FlagsNamed(flags, manifests.EncryptionFlag)
	files, encrypted := needed(flags), needed(encryption)
	for _, m := range c.mine.Spec.Containers[0].VolumeMounts {
		in := func(file string) bool { return manifests.Within(m.MountPath, file) }
		stays := hasMount(c.wanted, c.mine, m)
		if !stays && (hasMount(c.before, c.mine, m) || configured(m.MountPath)) {
			stays = !slices.ContainsFunc(encryption, func(f manifests.Flag) bool { return in(f.Value) && !c.stays(f) }) &&
				!slices.ContainsFunc(encrypted, func(file string) bool {
					_, found := thisnode.OnHost(c.wanted, file)
					return in(file) && !found
				})
		}
		if !stays && slices.ContainsFunc(files, in) {
			lost = append(lost, m)
		}
	}
	return lost
}

// without returns e without the protection; nil if nothing else remains.
func (p protection) without(e *editedPod) *editedPod {
	if e == nil || len(p.flags)+len(p.mounts)+len(p.moved) == 0 {
		return e
	}
	have, before, _ := e.pods()
	p.contested = nil
	p.removeFrom(have, before)
	rest := editedPod{e.component, encoded(have), e.before, e.wanted}
	if manifests.SameStaticPod(rest.have, e.before) {
		return nil
	}
	return &rest
}

// removeFrom removes the protection from a Pod, and restores the original flags, and etcd's directories, from was.
func (p protection) removeFrom(pod, was *corev1.Pod) {
	c := &pod.Spec.Containers[0]
	for _, f := range slices.Concat(p.flags, p.contested) {
		for _, word := range f.Words {
			if i := slices.Index(c.Command, word); i >= 0 {
				c.Command = slices.Delete(c.Command, i, i+1)
			}
		}
		for _, before := range manifests.FlagsNamed(manifests.FlagsOf(was.Spec.Containers[0].Command), f.Name) {
			if !slices.ContainsFunc(manifests.FlagsOf(c.Command), before.Same) {
				c.Command = append(c.Command, before.Words...)
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
	if len(p.moved) > 0 {
		restoreDirs(pod, was)
	}
}

// findings are errors that no flag ignores.
func (p protection) findings(run, component string) (found []fault.Finding) {
	if len(p.moved) > 0 {
		found = append(found, p.movedFinding(run, component))
	}
	var lost []string
	for _, f := range p.flags {
		lost = append(lost, strings.Join(f.Words, " "))
	}
	for _, m := range p.mounts {
		lost = append(lost, "the volume at "+m.MountPath)
	}
	if len(lost) == 0 {
		return found
	}
	f := fault.NewFinding(fault.StaticPodProtection, fault.Error,
		"keep it in a patch (--patches), which `slipway upgrade plan` prints, or in extraArgs and extraVolumes of the ClusterConfiguration; "+
			"to give it up, take it out of the static Pod first, or put the new value there, and see that the component works and reads its data",
		"%s would drop protection of data or access from the static Pod of %s: %s", run, component, strings.Join(lost, ", "))
	f.Final = true
	return append(found, f)
}

// RefuseLoss fails if the upgrade would drop protection, for runs of the phase without the checks.
func RefuseLoss(ctx context.Context, env *step.Env) error {
	found := slices.DeleteFunc(StaticPodFindings(ctx, env), func(f fault.Finding) bool { return !f.Final })
	return preflight.Report{fault.Error: found}.Err()
}
