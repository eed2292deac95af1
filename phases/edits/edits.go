// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package edits finds an operator's hand edits of static Pods and of the kubelet's configuration before a workflow overwrites
// them. StaticPodFindings and KubeletFindings report them, PatchesOf turns them into patches, and RefuseLoss stops a run that
// would drop flags or volumes that protect data. Start at editsHere, which rebuilds each original and compares.
// docs/design/edits.md has the rules.
package edits

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ownership"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/phases/trial"
)

// podEdits are the differences between a static Pod and its original by Slipway or kubeadm that the upgrade, or a change of the
// configuration, would lose.
type podEdits struct {
	component string
	run       string // names what would lose them
	suffix    string // of patches; empty if `slipway upgrade plan` prints them
	// err says why the differences aren't known.
	err error
	// edited has the certain edits; nil if there are none.
	edited *editedPod
	// doubtful has the differences that are either edits, or from an earlier ClusterConfiguration; nil if there are none. It was
	// changed at this time.
	doubtful *editedPod
	changed  time.Time
	// proxies names the proxy variables that an earlier run took from its environment, and that the upgrade changes or drops.
	proxies []string
	// protection guards data or access and would be dropped. It's always an edit, never doubtful.
	protection protection
	// plugins are the paths of flex volume plugins that the controller manager would no longer find.
	plugins []string
	// image is this component's own tag or digest of the usual image, which the upgrade drops; empty if there's none.
	image string
}

// editedPod is a static Pod that differs from the original. All three can be decoded, and have a container.
type editedPod struct {
	component string
	have      []byte // now
	before    []byte // the original, as far as it's known
	wanted    []byte // as the upgrade writes it
}

// String returns the differences in a line.
func (e *editedPod) String() string { return ownership.LineDifference(e.have, e.before) }

func (e *editedPod) pods() (have, before, wanted *corev1.Pod) {
	have, _ = manifests.DecodePod(e.have)
	before, _ = manifests.DecodePod(e.before)
	wanted, _ = manifests.DecodePod(e.wanted)
	return have, before, wanted
}

// encoded returns a Pod as YAML; a decoded Pod can always be encoded.
func encoded(pod *corev1.Pod) []byte {
	data, _ := manifests.Encode(pod)
	return data
}

// editsHere compares this control plane's static Pods with those made from this configuration for the node's current version.
func editsHere(ctx context.Context, env *step.Env) ([]podEdits, error) {
	view, err := node.HostView(env)
	if err != nil {
		return nil, err
	}
	changed, err := ConfigurationChanged(ctx, env, manifests.KubeadmConfigMap, manifests.KubeadmConfigKey)
	if err != nil {
		return nil, err
	}
	var list []podEdits
	for _, name := range node.Replaceable(env) {
		p := podEdits{component: name, run: env.Config.Upgrade.Run(), changed: changed}
		if env.Config.Upgrade.Before != nil {
			p.suffix = patchSuffix(env)
		}
		p.err = errors.WithMessage(p.find(env, view), env.Config.Paths.StaticPod(name))
		list = append(list, p)
	}
	return list, nil
}

func (p *podEdits) find(env *step.Env, view manifests.HostView) error {
	path := env.Config.Paths.StaticPod(p.component)
	have, err := host.ReadIfExists(env.Host, path)
	if err != nil || have == nil {
		return err // the check StaticPodManifest reports it
	}
	wanted, err := node.StaticPodYAML(env, p.component, view, node.InitialMembers(env, p.component))
	if err != nil || manifests.SameStaticPod(have, wanted) {
		return err
	}
	mine, err := manifests.DecodePod(have)
	if err != nil {
		return err
	}
	next, err := manifests.DecodePod(wanted)
	if err != nil {
		return err
	}
	p.proxies, p.plugins = lostProxies(p.component, mine, next), lostPlugins(env, mine, next)
	p.image = lostImage(env, p.component, mine, next)
	written, err := writtenAt(env, path, func(b *upgrading.Backup) string { return b.Manifests[p.component] })
	if err != nil {
		return err
	}
	from := env
	if earlier := env.Config.Upgrade.ConfigAt(written); earlier != nil {
		from = withSourceConfig(env, earlier)
	}
	made, err := diffFromOriginal(from, p.component, view, have, mine)
	if err != nil {
		return err
	}
	compared := cmp.Or(made, &editedPod{have: have, before: have}) // today's patches may still change an unedited Pod
	compared.component, compared.wanted = p.component, wanted
	if p.protection, err = lostProtection(env, compared, view, mine); err != nil || made == nil {
		return err
	}
	if p.edited = made; p.changed.After(written) && from == env {
		p.split()
	}
	return nil
}

// withSourceConfig returns the environment with the configuration that this node's files were made from.
func withSourceConfig(env *step.Env, earlier *config.Node) *step.Env {
	from := *env
	from.Config = env.Config.With(func(n *config.Node) {
		u := *n.Upgrade
		u.Before = earlier
		n.Upgrade = &u
	})
	return &from
}

// writtenAt returns when a file was written; the zero time if the last upgrade may have put the file back from its backup.
func writtenAt(env *step.Env, path string, keptIn func(*upgrading.Backup) string) (time.Time, error) {
	written, err := trial.WrittenAt(env, path)
	if err != nil {
		return time.Time{}, err
	}
	backup, _, err := backup.LastUpgrade(env)
	if err != nil || backup == nil || keptIn(backup) == "" {
		return written, err
	}
	kept, err := env.Host.ReadFile(keptIn(backup))
	if err != nil {
		return time.Time{}, err
	}
	have, err := env.Host.ReadFile(path)
	if bytes.Equal(kept, have) {
		return time.Time{}, err
	}
	return written, err
}

// diffFromOriginal compares a static Pod with its possible originals: with today's patches, and without, as those may be new. It
// returns the smallest difference, or nil if an original is the same. Values from today's patches don't count, as the operator
// chose them. docs/design/finding-edits.md says why nothing records the original.
func diffFromOriginal(env *step.Env, component string, view manifests.HostView, have []byte, pod *corev1.Pod) (*editedPod, error) {
	patches, err := env.Patches()
	if err != nil {
		return nil, err
	}
	made := node.NewStaticPod(withPreviousVersion(env).Config, component, view.FromPod(pod), node.InitialMembers(env, component))
	plain := encoded(withTagOf(pod, manifests.AsOlder(made, pod)))
	patched, err := patches.Apply(component, plain, &corev1.Pod{})
	if err != nil {
		return smallest([]*editedPod{{have: have, before: plain}}), nil //nolint:nilerr // They fit what the upgrade writes.
	}
	if _, err := manifests.DecodePod(patched); err != nil {
		return nil, err
	}
	list := []*editedPod{{have: have, before: plain}, {have: have, before: patched}}
	again, err := patches.Apply(component, have, &corev1.Pod{})
	if err != nil {
		return smallest(list), nil //nolint:nilerr // Such as a JSON patch of a flag that is in another place there.
	}
	if _, err := manifests.DecodePod(again); err != nil {
		return nil, err
	}
	return smallest(append(list, withPatches(plain, patched, again))), nil
}

// withPatches compares a static Pod with its original, after applying today's patches to both. If only the patches set a flag,
// its other values don't count: they may come from earlier patches.
func withPatches(plain, patched, again []byte) *editedPod {
	have, before, without := (&editedPod{have: again, before: patched, wanted: plain}).pods()
	words := before.Spec.Containers[0].Command
	decided := slices.DeleteFunc(slices.Clone(words), func(word string) bool {
		i := slices.IndexFunc(words, sameFlag(word))
		again := slices.ContainsFunc(words[i+1:], sameFlag(word))
		return again || slices.Contains(without.Spec.Containers[0].Command, word)
	})
	for _, pod := range []*corev1.Pod{have, before} {
		c := &pod.Spec.Containers[0]
		others := slices.DeleteFunc(slices.Clone(c.Command), func(word string) bool { return slices.ContainsFunc(decided, sameFlag(word)) })
		c.Command = append(others, decided...)
	}
	return &editedPod{have: encoded(have), before: encoded(before)}
}

func sameFlag(word string) func(string) bool {
	return func(other string) bool { return flagName(other) == flagName(word) }
}

// smallest returns the smallest of several differences; nil if any is empty.
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
func (p *podEdits) split() {
	e := p.edited
	have, before, _ := e.pods()
	mine, made := have.DeepCopy().Spec.Containers[0], &before.Spec.Containers[0]
	was := before.DeepCopy()
	made.Command, made.Env, made.Image, made.Ports, made.VolumeMounts = mine.Command, mine.Env, mine.Image, mine.Ports, mine.VolumeMounts
	before.Spec.Volumes = have.DeepCopy().Spec.Volumes
	p.protection.removeFrom(before, was)
	for _, probes := range [][2]*corev1.Probe{{made.LivenessProbe, mine.LivenessProbe}, {made.ReadinessProbe, mine.ReadinessProbe},
		{made.StartupProbe, mine.StartupProbe}} {
		if probes[0] != nil && probes[1] != nil {
			probes[0].HTTPGet = probes[1].HTTPGet
		}
	}
	earlier := encoded(before)
	p.edited = nil
	if !manifests.SameStaticPod(e.have, earlier) {
		p.edited = &editedPod{e.component, e.have, earlier, e.wanted}
	}
	if !manifests.SameStaticPod(earlier, e.before) {
		p.doubtful = &editedPod{e.component, earlier, e.before, e.wanted}
	}
}

// withPreviousVersion returns the environment with the version that this control plane runs, and the configuration it was made
// from.
func withPreviousVersion(env *step.Env) *step.Env {
	before := *env
	from := env.Config
	if earlier := from.Upgrade.Before; earlier != nil {
		from = earlier
	}
	before.Config = from.With(func(n *config.Node) { n.Cluster.KubernetesVersion = node.RunningVersion(env) })
	return &before
}

// withTagOf gives made the image of have, if both come from the same repository: kubeadm's releases chose different versions of
// etcd for the same version of Kubernetes. An upgrade changes the others' tags anyway; lostImage reports unusual ones.
func withTagOf(have, made *corev1.Pod) *corev1.Pod {
	mine, ours := &have.Spec.Containers[0], &made.Spec.Containers[0]
	there, _ := manifests.SplitImage(mine.Image)
	if name, _ := manifests.SplitImage(ours.Image); name == there {
		ours.Image = mine.Image
	}
	return made
}
