// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/pkg/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/corefile"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/step"
)

// UnknownPlugins is the check of the Corefile, as in kubeadm. Ignoring it keeps CoreDNS plugins the migration doesn't know.
const UnknownPlugins = "CoreDNSUnsupportedPlugins"

// corefileBackup is the key of a migrated Corefile's original, as in kubeadm.
const corefileBackup = "Corefile-backup"

// coreDNSTitle names CoreDNS in messages, and its phase's condition.
const coreDNSTitle = "CoreDNS"

// coreDNSUpgrade is an upgrade of CoreDNS and its Corefile that has been worked out.
type coreDNSUpgrade struct {
	list     []cluster.Versions
	from, to string // images
	// data is the ConfigMap's in the cluster; nil if it doesn't exist. text is the next Corefile.
	data map[string]string
	text string
	// kept says why both stay; nil if they don't. unknown are plugins that stay in the Corefile although nobody knows whether they still work.
	kept, unknown error
}

// upgradeCoreDNS upgrades CoreDNS together with its Corefile. If the Corefile's needs are unknown, both stay: an old CoreDNS with
// its Corefile works, a new CoreDNS that refuses it doesn't.
func upgradeCoreDNS(ctx context.Context, env *step.Env) error {
	u, err := nextCoreDNS(ctx, env)
	if err != nil {
		return err
	}
	if u == nil {
		reportMissing(env, "Deployment kube-system/coredns", "addon coredns")
		return nil
	}
	if u.kept != nil {
		reportCoreDNSKept(env, u)
		return nil //nolint:nilerr // the report says why
	}
	if u.from != u.to {
		env.UI.Printf("Upgrading CoreDNS to %s", u.to)
	}
	if u.unknown != nil {
		env.UI.Warnf("%v; the upgrade leaves these parts of the Corefile as they are", u.unknown)
	}
	if u.data != nil && u.text != u.data[manifests.CorefileKey] {
		env.UI.Printf("Migrating the Corefile to CoreDNS %s; the old one stays in the key %s of ConfigMap kube-system/%s",
			corefile.Version(u.to), corefileBackup, manifests.CorefileMap)
	}
	return UpgradeObjects(ctx, env, "addon coredns", u.list)
}

// nextCoreDNS works out CoreDNS's upgrade; nil if the cluster has none.
func nextCoreDNS(ctx context.Context, env *step.Env) (*coreDNSUpgrade, error) {
	list, err := Versions(env, manifests.CoreDNS)
	if err != nil {
		return nil, err
	}
	deployment, settings := FindVersions[*appsv1.Deployment](list), FindVersions[*corev1.ConfigMap](list)
	live, cm := deployment.New.DeepCopyObject().(*appsv1.Deployment), settings.New.DeepCopyObject().(*corev1.ConfigMap)
	if found, err := env.Cluster.Get(ctx, live); err != nil || !found {
		return nil, err
	}
	upgraded, err := mergedWith(env.Config, live, *deployment)
	if err != nil {
		return nil, err
	}
	u := &coreDNSUpgrade{list: list, from: coreDNSImage(live), to: coreDNSImage(upgraded)}
	found, err := env.Cluster.Get(ctx, cm)
	if err != nil {
		return nil, err
	}
	if found {
		u.data = cm.Data
	}
	if u.kept = coreDNSDowngrade(env, deployment, u.from, u.to); u.kept == nil {
		u.kept = u.migrate(env, settings, upgraded)
	}
	return u, nil
}

// coreDNSDowngrade is an error if another image of CoreDNS has an older version, and nobody wants that.
func coreDNSDowngrade(env *step.Env, deployment *cluster.Versions, from, to string) error {
	if coreDNSImage(deployment.New.(*appsv1.Deployment)) != coreDNSImage(deployment.Plain.(*appsv1.Deployment)) {
		return nil // a patch does
	}
	return downgrade(env.Config, corefile.Version(from), corefile.Version(to))
}

// RefuseKeptCoreDNS fails if a change of the configuration gives CoreDNS another image, but the phase would keep the cluster's: that's
// newer, or nobody knows whether the next one accepts the Corefile.
func RefuseKeptCoreDNS(ctx context.Context, env *step.Env) error {
	n, before := env.Config, env.Config.Upgrade.Before
	if n.Cluster.DNS.Disabled || before == nil || n.Image("coredns") == before.Image("coredns") {
		return nil
	}
	u, err := nextCoreDNS(ctx, env)
	if err != nil || u == nil {
		return err
	}
	if fault.Remedy(u.kept) != "" { // it's newer
		_, tag := manifests.SplitImage(u.from)
		return fault.WithRemedy(u.kept, "set dns.imageTag to "+tag+", which keeps this version, or to the version that the cluster should have, in the same change or, before --revert, in one of its own")
	}
	return fault.WithRemedy(errors.WithMessagef(u.kept, "CoreDNS would stay as it is, with %s", u.from),
		"check that "+u.to+" accepts the Corefile (its release notes are on https://coredns.io), change it if "+
			"necessary, run `"+setImage(u.to)+"`, and then this command again")
}

// KeptCoreDNS says why an upgrade keeps CoreDNS's version from and its Corefile, instead of version to; nil if it doesn't.
func KeptCoreDNS(n *config.Node, text, from, to string) error {
	if err := downgrade(n, from, to); err != nil || text == "" || from == to {
		return err
	}
	objs, err := manifests.CoreDNS(n, config.PatchSet{})
	if err != nil {
		return err
	}
	for _, obj := range objs {
		if cm, is := obj.(*corev1.ConfigMap); is && cm.Data[manifests.CorefileKey] == text {
			return nil
		}
	}
	if _, err = corefile.Migrate(text, from, to); keepsPlugins(n, err) {
		return nil
	}
	return err
}

// downgrade is an error if another version of CoreDNS is older, and no dns.imageTag wants it: somebody may need the newer version.
func downgrade(n *config.Node, from, to string) error {
	before := n.Upgrade != nil && n.Upgrade.Before != nil && n.Upgrade.Before.Cluster.DNS.ImageTag != ""
	there, err := version.ParseGeneric(from)
	next, nextErr := version.ParseGeneric(to)
	if n.Cluster.DNS.ImageTag != "" || before || err != nil || nextErr != nil || next.AtLeast(there) {
		return nil //nolint:nilerr // an image without a version can't be compared
	}
	return fault.New(fmt.Sprintf("CoreDNS %s is newer than %s, the version for Kubernetes %s", from, to, n.Cluster.KubernetesVersion),
		"to give the cluster another version of CoreDNS, set dns.imageTag in ConfigMap kube-system/kubeadm-config")
}

// keepsPlugins reports whether an error is about plugins that are unknown, and that the user wants to keep.
func keepsPlugins(n *config.Node, err error) bool {
	plugins := (*corefile.UnknownPluginsError)(nil)
	return errors.As(err, &plugins) && fault.Ignored(UnknownPlugins, n.IgnorePreflightErrors)
}

// migrate gives the new versions of the ConfigMap the Corefile that CoreDNS needs. The replaced Corefile stays beside it, under
// kubeadm's key. It returns an error if nobody knows the needed Corefile.
func (u *coreDNSUpgrade) migrate(env *step.Env, settings *cluster.Versions, upgraded *appsv1.Deployment) (err error) {
	from, to := corefile.Version(u.from), corefile.Version(u.to)
	if from != to && !readsCorefile(upgraded) {
		return errors.New("its Deployment does not read its Corefile from ConfigMap kube-system/" + manifests.CorefileMap)
	}
	if u.data == nil { // the Deployment waits for it
		return nil
	}
	if u.text, err = newCorefile(u.data, settings, from, to); keepsPlugins(env.Config, err) {
		u.unknown, err = err, nil
	}
	if err != nil {
		return err
	}
	is := u.data[manifests.CorefileKey]
	setCorefile(settings, is, u.text)
	if u.text == is {
		return nil
	}
	settings.New.(*corev1.ConfigMap).Data[corefileBackup] = is
	settings.Plain.(*corev1.ConfigMap).Data[corefileBackup] = is
	if backup, found := u.data[corefileBackup]; found { // from an earlier migration, to be replaced
		settings.Old.(*corev1.ConfigMap).Data[corefileBackup] = backup
	}
	return nil
}

// setCorefile makes the versions of the ConfigMap replace a Corefile with another. Keys added by others stay.
func setCorefile(settings *cluster.Versions, is, text string) {
	settings.Old.(*corev1.ConfigMap).Data[manifests.CorefileKey] = is
	settings.New.(*corev1.ConfigMap).Data[manifests.CorefileKey] = text
	settings.Plain.(*corev1.ConfigMap).Data[manifests.CorefileKey] = text
}

// newCorefile returns the cluster's Corefile for another version of CoreDNS. An earlier release's default becomes the new
// release's, and a Corefile already migrated by an interrupted run stays.
func newCorefile(data map[string]string, settings *cluster.Versions, from, to string) (string, error) {
	is, backup := data[manifests.CorefileKey], data[corefileBackup]
	for _, version := range []cluster.Object{settings.New, settings.Old} {
		if is == version.(*corev1.ConfigMap).Data[manifests.CorefileKey] {
			return settings.New.(*corev1.ConfigMap).Data[manifests.CorefileKey], nil
		}
	}
	if migrated, err := corefile.Migrate(backup, from, to); err == nil && backup != "" && migrated == is {
		return is, nil
	}
	return corefile.Migrate(is, from, to)
}

func readsCorefile(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name == manifests.CorefileMap &&
			(len(v.ConfigMap.Items) == 0 || slices.ContainsFunc(v.ConfigMap.Items, func(k corev1.KeyToPath) bool { return k.Key == manifests.CorefileKey }))
	})
}

func reportCoreDNSKept(env *step.Env, u *coreDNSUpgrade) {
	ui.WarnError(env.UI, fault.WithRemedy(errors.WithMessage(u.kept, "keeping CoreDNS and its configuration as they are, with "+u.from),
		cmp.Or(fault.Remedy(u.kept), "check that "+u.to+" accepts the Corefile (its release notes are on https://coredns.io), change it if necessary, and run "+
			"`"+setImage(u.to)+"`; to stay with another version, set dns.imageTag in ConfigMap kube-system/kubeadm-config")))
}

func setImage(image string) string {
	return "kubectl -n kube-system set image deployment/coredns coredns=" + image
}

// FindVersions returns the element whose objects have type T, or nil.
func FindVersions[T cluster.Object](list []cluster.Versions) *cluster.Versions {
	i := slices.IndexFunc(list, func(v cluster.Versions) bool { _, is := v.New.(T); return is })
	if i < 0 {
		return nil
	}
	return &list[i]
}

// reportMissing says that an add-on without its workload isn't installed again: the cluster may use another.
func reportMissing(env *step.Env, workload, phase string) {
	env.UI.Printf("The cluster has no %s, and stays without it; `slipway init phase %s` with the cluster's configuration (--config) would install it", workload, phase)
}

func coreDNSImage(d *appsv1.Deployment) string {
	return manifests.ContainerImage(d.Spec.Template.Spec.Containers, "coredns")
}
