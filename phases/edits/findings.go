// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package edits

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/lazyregexp"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/backup"
	"github.com/slipway-k8s/slipway/phases/step"
)

// The names of the checks for edits, by which users ignore them.
const (
	StaticPodCheck = "StaticPodEdits"
	KubeletCheck   = "KubeletConfigEdits"
)

// StaticPodFindings finds edits of this control plane's static Pods that the upgrade would lose.
func StaticPodFindings(ctx context.Context, env *step.Env) []fault.Finding {
	failed := func(err error) fault.Finding { // the failed comparison may hide protection
		f := fault.Of(err)
		f.Name, f.Final = StaticPodCheck, true
		return f
	}
	list, err := editsHere(ctx, env)
	if err != nil {
		return []fault.Finding{failed(err)}
	}
	var found []fault.Finding
	for _, edits := range list {
		if edits.err != nil {
			found = append(found, failed(edits.err))
			continue
		}
		found = append(found, edits.protection.findings(edits.run, edits.component)...)
		edits.edited = edits.protection.without(edits.edited)
		found = append(found, edits.findings()...)
	}
	return found
}

func (e podEdits) findings() []fault.Finding {
	var found []fault.Finding
	if e.edited != nil {
		found = append(found, fault.NewFinding(StaticPodCheck, fault.Error,
			e.remedy(e.edited, "keep them in a patch (--patches), which `slipway upgrade plan` prints, or in extraArgs of the ClusterConfiguration; to drop them, use "+fault.Ignoring(StaticPodCheck),
				"keep them in extraArgs of the ClusterConfiguration, or in a patch; to drop them, use "+fault.Ignoring(StaticPodCheck)),
			"%s would lose edits of the static Pod of %s: %s", e.run, e.component, e.edited))
	}
	if e.doubtful != nil {
		found = append(found, fault.NewFinding(StaticPodCheck, fault.Warning,
			e.remedy(e.doubtful, "nothing to do if this comes from that change; if it is an edit, keep it in a patch (--patches), which `slipway upgrade plan` prints",
				"nothing to do if this comes from that change; if it is an edit, keep it in a patch"),
			"%s writes the static Pod of %s as the ClusterConfiguration says, which was changed on %s, after the static Pod was written: %s",
			e.run, e.component, ui.Time(e.changed), e.doubtful))
	}
	if len(e.proxies) > 0 {
		found = append(found, fault.NewFinding(StaticPodCheck, fault.Warning,
			"run it with the same variables in its environment, or set them in extraEnvs of the ClusterConfiguration",
			"%s takes proxy settings from its own environment, as init does, and would drop or change %s in the static Pod of %s", e.run, strings.Join(e.proxies, ", "), e.component))
	}
	if len(e.plugins) > 0 {
		found = append(found, fault.NewFinding(StaticPodCheck, fault.Warning,
			"if the controller manager needs them, add their directory to controllerManager.extraVolumes of the ClusterConfiguration",
			"%s no longer mounts flex volume plugins in the static Pod of %s: %s", e.run, e.component, strings.Join(e.plugins, ", ")))
	}
	if e.image != "" {
		found = append(found, fault.NewFinding(StaticPodCheck, fault.Warning,
			"nothing to do, unless this is a build of your own: then name the build for the new version in a patch (--patches)",
			"%s drops the tag or digest of the image of %s: %s", e.run, e.component, e.image))
	}
	return found
}

// remedy is a remedy with the patches that keep an edit: `slipway upgrade plan` prints an upgrade's.
func (e podEdits) remedy(edited *editedPod, ofUpgrade, ofChange string) string {
	if e.suffix == "" {
		return ofUpgrade
	}
	suffix := e.suffix
	if edited == e.doubtful { // an operator may save it beside that of certain edits
		suffix += doubtfulSuffix
	}
	files, err := edited.patches(suffix)
	if err != nil {
		return ofChange
	}
	return ofChange + "; " + shownPatches(files...)
}

// lostProxies names the proxy variables of have that are missing from wanted, or have another value there.
func lostProxies(component string, have, wanted *corev1.Pod) (names []string) {
	if component == manifests.EtcdName { // etcd has no proxies
		return nil
	}
	next := manifests.HostView{}.FromPod(wanted).ProxyEnv
	for _, e := range (manifests.HostView{}).FromPod(have).ProxyEnv {
		if !slices.Contains(next, e) {
			names = append(names, e.Name)
		}
	}
	return names
}

// lostPlugins lists the plugins in the flex volume directory that older releases mount.
func lostPlugins(env *step.Env, have, wanted *corev1.Pod) (paths []string) {
	for _, m := range have.Spec.Containers[0].VolumeMounts {
		kept := func(other corev1.VolumeMount) bool { return other.MountPath == m.MountPath }
		if m.Name != manifests.FlexVolume || slices.ContainsFunc(wanted.Spec.Containers[0].VolumeMounts, kept) {
			continue
		}
		entries, _ := env.Host.ReadDir(m.MountPath) // mounted at the same path; no directory, no plugins
		for _, e := range entries {
			paths = append(paths, filepath.Join(m.MountPath, e.Name()))
		}
	}
	return paths
}

// releaseTag matches tags of Kubernetes' own releases.
var releaseTag = lazyregexp.New(`^v\d+\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// lostImage returns the image of have if the operator seems to have chosen its tag or digest, and wanted has the usual image again.
// etcd's tags vary between releases of kubeadm, and another repository is an edit.
func lostImage(env *step.Env, component string, have, wanted *corev1.Pod) string {
	image, usual := have.Spec.Containers[0].Image, withPreviousVersion(env).Config.Image(component)
	repository, tag := manifests.SplitImage(image)
	usualRepository, usualTag := manifests.SplitImage(usual)
	next := wanted.Spec.Containers[0].Image
	if component == manifests.EtcdName || image == next || repository != usualRepository || next != env.Config.Image(component) {
		return ""
	}
	versions := []string{env.Config.Upgrade.From}
	if earlier, _, err := backup.LastUpgrade(env); err == nil && earlier != nil { // interrupted, this upgrade has replaced some components
		versions = append(versions, earlier.From)
	}
	isVersion := func(v string) bool { return strings.ReplaceAll(v, "+", "_") == tag }
	// usualTag comes from the API server's own image, which may be a build of the operator's, too.
	known := slices.ContainsFunc(versions, isVersion) || tag == usualTag && releaseTag().MatchString(tag)
	if known && !strings.Contains(image, "@") {
		return ""
	}
	return image
}
