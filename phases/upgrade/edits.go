// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// podEdits are the differences between a static Pod and its original by Slipway or kubeadm that the upgrade would lose.
type podEdits struct {
	// edited has the certain edits; nil if there are none.
	edited *editedPod
	// doubtful has the differences that are either edits, or from an earlier ClusterConfiguration; nil if there are none.
	doubtful *editedPod
	// proxies names the proxy variables that an earlier run took from its environment, and that the upgrade changes or drops.
	proxies []string
	// protection guards data or access and would be dropped. It's always an edit, never doubtful.
	protection protection
	// plugins are the paths of flex volume plugins that the controller manager would no longer find.
	plugins []string
}

// editedPod is a static Pod that differs from the original.
type editedPod struct {
	component string
	have      []byte // now
	before    []byte // the original, as far as it's known
	wanted    []byte // as the upgrade writes it
}

// String returns the differences in a line.
func (e *editedPod) String() string { return ownership.LineDifference(e.have, e.before) }

// editsOf compares a component's static Pod with the one made from this configuration for the node's current version. changed is
// when an operator last changed the ClusterConfiguration in the cluster, see configurationChanged.
func editsOf(env *step.Env, component string, view manifests.HostView, changed time.Time) (podEdits, error) {
	path := thisnode.StaticPodPath(env.Config, component)
	have, err := host.ReadIfExists(env.Host, path)
	if err != nil || have == nil {
		return podEdits{}, err // the check StaticPodManifest reports it
	}
	wanted, err := node.StaticPodYAML(env, component, view, membersOf(env, component))
	if err != nil || manifests.SameStaticPod(have, wanted) {
		return podEdits{}, err
	}
	edits := podEdits{proxies: lostProxies(component, have, wanted), plugins: lostPlugins(env, have, wanted)}
	if edits.edited, err = comparedWithMade(env, component, view, have); err != nil {
		return edits, errors.WithMessage(err, path)
	}
	if edits.edited == nil { // today's patches may still change an unedited Pod
		same := &editedPod{component, have, have, wanted}
		edits.protection, err = lostProtection(env, same, view, have)
		return edits, errors.WithMessage(err, path)
	}
	edits.edited.component, edits.edited.wanted = component, wanted
	if edits.protection, err = lostProtection(env, edits.edited, view, have); err != nil {
		return edits, errors.WithMessage(err, path)
	}
	written, err := writtenAt(env, path, func(b *upgrading.Backup) string { return b.Manifests[component] })
	if err != nil || !changed.After(written) {
		return edits, err
	}
	return edits, edits.split()
}

// writtenAt returns when a file was written; the zero time if the last upgrade may have put the file back from its backup.
func writtenAt(env *step.Env, path string, keptIn func(*upgrading.Backup) string) (time.Time, error) {
	info, err := env.Host.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	backup, _, err := backup.Here(env)
	if err != nil || backup == nil || keptIn(backup) == "" {
		return info.ModTime(), err
	}
	kept, err := env.Host.ReadFile(keptIn(backup))
	if err != nil {
		return time.Time{}, err
	}
	have, err := env.Host.ReadFile(path)
	if bytes.Equal(kept, have) {
		return time.Time{}, err
	}
	return info.ModTime(), err
}

// comparedWithMade compares a static Pod with its possible originals: with today's patches, and without, as those may be new. It
// returns the smallest difference, or nil if an original is the same. Values from today's patches don't count, as the operator
// chose them.
func comparedWithMade(env *step.Env, component string, view manifests.HostView, have []byte) (*editedPod, error) {
	pod, err := node.DecodePod(have)
	if err != nil {
		return nil, err
	}
	patches, err := env.Patches()
	if err != nil {
		return nil, err
	}
	made := node.NewStaticPod(asBefore(env).Config, component, view.AsIn(pod), membersOf(env, component))
	plain, err := manifests.Encode(withTagOf(pod, manifests.AsOlder(made, pod)))
	if err != nil {
		return nil, err
	}
	patched, err := patches.Apply(component, plain, &corev1.Pod{})
	if err != nil {
		return smallest([]*editedPod{{have: have, before: plain}}), nil //nolint:nilerr // They fit what the upgrade writes.
	}
	list := []*editedPod{{have: have, before: plain}, {have: have, before: patched}}
	again, err := patches.Apply(component, have, &corev1.Pod{})
	if err != nil {
		return smallest(list), nil //nolint:nilerr // Such as a JSON patch of a flag that is in another place there.
	}
	both, err := withPatches(plain, patched, again)
	if err != nil {
		return nil, err
	}
	return smallest(append(list, both)), nil
}

// withPatches compares a static Pod with its original, after applying today's patches to both. If only the patches set a flag,
// its other values don't count: they may come from earlier patches.
func withPatches(plain, patched, again []byte) (*editedPod, error) {
	e := &editedPod{have: again, before: patched, wanted: plain}
	have, before, without, err := e.pods()
	if err != nil {
		return nil, err
	}
	words := before.Spec.Containers[0].Command
	decided := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		i := slices.IndexFunc(words, sameFlag(word))
		again := slices.ContainsFunc(words[i+1:], sameFlag(word))
		return again || slices.Contains(without.Spec.Containers[0].Command, word)
	})
	for pod, data := range map[*corev1.Pod]*[]byte{have: &e.have, before: &e.before} {
		c := &pod.Spec.Containers[0]
		others := slices.DeleteFunc(c.Command, func(word string) bool { return slices.ContainsFunc(decided, sameFlag(word)) })
		c.Command = append(others, decided...)
		if *data, err = manifests.Encode(pod); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func sameFlag(word string) func(string) bool {
	return func(other string) bool { return flagName(other) == flagName(word) }
}

// smallest returns the smallest of several differences; nil if one is empty.
func smallest(list []*editedPod) *editedPod {
	if slices.ContainsFunc(list, func(e *editedPod) bool { return manifests.SameStaticPod(e.have, e.before) }) {
		return nil
	}
	lines := func(a, b []byte) (n int) {
		there := strings.Split(string(b), "\n")
		for line := range strings.Lines(string(a)) {
			if !slices.Contains(there, strings.TrimRight(line, "\n")) {
				n++
			}
		}
		return n
	}
	return slices.MinFunc(list, func(a, b *editedPod) int {
		return lines(a.have, a.before) + lines(a.before, a.have) - lines(b.have, b.before) - lines(b.before, b.have)
	})
}

// split leaves in edited all protection and the changes only a person can have made. It moves to doubtful what an earlier
// ClusterConfiguration may have set: flags, variables, volumes, the image and the addresses of the probes.
func (p *podEdits) split() error {
	e := p.edited
	have, before, _, err := e.pods()
	if err != nil {
		return err
	}
	mine, made := have.DeepCopy().Spec.Containers[0], &before.Spec.Containers[0]
	was := made.Command
	made.Command, made.Env, made.Image, made.Ports, made.VolumeMounts = mine.Command, mine.Env, mine.Image, mine.Ports, mine.VolumeMounts
	before.Spec.Volumes = have.DeepCopy().Spec.Volumes
	p.protection.takenFrom(before, was)
	for _, probes := range [][2]*corev1.Probe{{made.LivenessProbe, mine.LivenessProbe}, {made.ReadinessProbe, mine.ReadinessProbe},
		{made.StartupProbe, mine.StartupProbe}} {
		if probes[0] != nil && probes[1] != nil {
			probes[0].HTTPGet = probes[1].HTTPGet
		}
	}
	earlier, err := manifests.Encode(before)
	if err != nil {
		return err
	}
	p.edited = nil
	if !manifests.SameStaticPod(e.have, earlier) {
		p.edited = &editedPod{e.component, e.have, earlier, e.wanted}
	}
	if !manifests.SameStaticPod(earlier, e.before) {
		p.doubtful = &editedPod{e.component, earlier, e.before, e.wanted}
	}
	return nil
}

func (e *editedPod) pods() (have, before, wanted *corev1.Pod, err error) {
	if have, err = node.DecodePod(e.have); err != nil {
		return nil, nil, nil, err
	}
	if before, err = node.DecodePod(e.before); err != nil {
		return nil, nil, nil, err
	}
	wanted, err = node.DecodePod(e.wanted)
	return have, before, wanted, err
}

// asBefore returns the environment with the version that this control plane runs.
func asBefore(env *step.Env) *step.Env {
	before, node := *env, *env.Config
	node.Cluster.KubernetesVersion = runningVersion(env)
	before.Config = &node
	return &before
}

// runningVersion is the version of this node's API server, from its static Pod, or else from the cluster's configuration.
func runningVersion(env *step.Env) string {
	pod, found := thisnode.StaticPod(env.Host, thisnode.StaticPodPath(env.Config, manifests.APIServerName))
	if found && len(pod.Spec.Containers) > 0 {
		if tag := upgrading.TagOf(pod.Spec.Containers[0].Image); strings.HasPrefix(tag, "v") {
			return strings.ReplaceAll(tag, "_", "+")
		}
	}
	return env.Config.Upgrade.From
}

// withTagOf gives made the image of have, if both come from the same repository: kubeadm's releases chose different versions of
// etcd for the same version of Kubernetes.
func withTagOf(have, made *corev1.Pod) *corev1.Pod {
	mine, ours := &have.Spec.Containers[0], &made.Spec.Containers[0]
	there, _ := upgrading.SplitImage(mine.Image)
	if name, _ := upgrading.SplitImage(ours.Image); name == there {
		ours.Image = mine.Image
	}
	return made
}
