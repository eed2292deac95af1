// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package addon

import (
	"context"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// CoreDNSChange is CoreDNS before and after a change. The configuration alone doesn't tell: the image may have been another one, and a
// Corefile can't always be migrated to an earlier version.
type CoreDNSChange struct {
	Before CoreDNS `json:"before"`
	After  CoreDNS `json:"after"`
}

// CoreDNS is how CoreDNS runs: its image, and its Corefile with the text that a migration has replaced, by their keys; no texts without
// a ConfigMap.
type CoreDNS struct {
	Image string            `json:"image"`
	Texts map[string]string `json:"texts,omitempty"`
}

// NextCoreDNS returns what CoreDNS's phase is about to change, which may be nothing; nil if the cluster has no CoreDNS.
func NextCoreDNS(ctx context.Context, env *step.Env) (*CoreDNSChange, error) {
	u, err := nextCoreDNS(ctx, env)
	if err != nil || u == nil {
		return nil, err
	}
	c := &CoreDNSChange{Before: CoreDNS{u.from, corefileTexts(u.data)}, After: CoreDNS{u.to, corefileTexts(u.data)}}
	if u.kept != nil {
		c.After = c.Before
		return c, nil //nolint:nilerr // nothing changes
	}
	if is := u.data[manifests.CorefileKey]; u.data != nil && u.text != is {
		c.After.Texts[manifests.CorefileKey], c.After.Texts[corefileBackup] = u.text, is
	}
	return c, nil
}

func corefileTexts(data map[string]string) map[string]string {
	if data == nil {
		return nil
	}
	texts := maps.Clone(data)
	maps.DeleteFunc(texts, func(key, _ string) bool { return key != manifests.CorefileKey && key != corefileBackup })
	return texts
}

// Back is the change that takes this one back.
func (c CoreDNSChange) Back() CoreDNSChange { return CoreDNSChange{Before: c.After, After: c.Before} }

// Fits reports whether nobody else has changed CoreDNS's image or its Corefile since before the change, whether or not it's made yet.
// It doesn't if CoreDNS is gone.
func (c CoreDNSChange) Fits(ctx context.Context, env *step.Env) (bool, error) {
	live, settings := &appsv1.Deployment{ObjectMeta: coreDNSMeta()}, node.ConfigMap(manifests.CorefileMap)
	found, err := env.Cluster.Get(ctx, live)
	if err != nil || !found {
		return false, err
	}
	if found, err = env.Cluster.Get(ctx, settings); err != nil {
		return false, err
	}
	text := func(texts map[string]string) string { return texts[manifests.CorefileKey] }
	return slices.Contains([]string{c.Before.Image, c.After.Image}, coreDNSImage(live)) &&
		(c.After.Texts == nil || found && slices.Contains([]string{text(c.Before.Texts), text(c.After.Texts)}, text(settings.Data))), nil
}

// Make gives CoreDNS the image and the Corefile after the change, and leaves the rest of it as it is.
func (c CoreDNSChange) Make(ctx context.Context, env *step.Env) error {
	if c.After.Texts != nil {
		settings := node.ConfigMap(manifests.CorefileMap)
		if _, err := env.Cluster.Update(ctx, settings, func() (bool, error) { return c.setTexts(settings), nil }); err != nil {
			return err
		}
	}
	live, changed := &appsv1.Deployment{ObjectMeta: coreDNSMeta()}, false
	_, err := env.Cluster.Update(ctx, live, func() (bool, error) {
		i := slices.IndexFunc(live.Spec.Template.Spec.Containers, func(c corev1.Container) bool { return c.Name == manifests.CoreDNSName })
		changed = i >= 0 && live.Spec.Template.Spec.Containers[i].Image != c.After.Image
		if changed {
			live.Spec.Template.Spec.Containers[i].Image = c.After.Image
		}
		return changed, nil
	})
	if err == nil && changed {
		env.UI.Printf("Giving CoreDNS the image %s", c.After.Image)
		reportRollout(env, live)
	}
	return err
}

func (c CoreDNSChange) setTexts(settings *corev1.ConfigMap) (changed bool) {
	if settings.Data == nil {
		settings.Data = map[string]string{}
	}
	for _, key := range []string{manifests.CorefileKey, corefileBackup} {
		text, wanted := c.After.Texts[key]
		is, found := settings.Data[key]
		switch {
		case found == wanted && is == text:
			continue
		case wanted:
			settings.Data[key] = text
		default:
			delete(settings.Data, key)
		}
		changed = true
	}
	return changed
}

func coreDNSMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: manifests.CoreDNSName}
}
