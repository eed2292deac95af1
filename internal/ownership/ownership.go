// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package ownership tells Slipway's files and objects from the operator's: everything Slipway wrote is Slipway's until someone
// edits it. On a host that was a node before, a whole workflow creates missing files and keeps differences; a single phase's
// command replaces them. Keeper applies the rule: Pending and Replace for files, EnsureMissing for objects.
// docs/design/ownership.md has the rule, docs/what-slipway-keeps.md the table.
package ownership

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/manifests"
)

// Keeper writes files and objects without overwriting operators' edits.
type Keeper struct {
	Host    host.Host
	Cluster cluster.Cluster
	UI      ui.UI
	Config  *config.Node
	// Rerun means a whole workflow runs on a host that was a node before.
	Rerun bool
	// Unfinished means the run that made it a node didn't finish (step.Earlier).
	Unfinished bool
}

// Ensure makes the API hold objs. It first gives the administrators' group its role, once per run: any phase may need it first.
func (k Keeper) Ensure(ctx context.Context, objs ...manifests.Object) error {
	if err := k.Cluster.EnsureAdmin(ctx); err != nil {
		return err
	}
	return k.Cluster.Ensure(ctx, objs...)
}

// EnsureMissing is Ensure for a Keeper that keeps edits: it creates missing objects, and shows how the others differ. writer is
// the command that would overwrite them.
func (k Keeper) EnsureMissing(ctx context.Context, writer string, objs ...manifests.Object) error {
	if !k.Rerun {
		return k.Ensure(ctx, objs...)
	}
	found, err := k.Compare(ctx, objs)
	if err != nil {
		return err
	}
	var missing []manifests.Object
	for i, obj := range objs {
		switch found[i].Change {
		case cluster.Create:
			missing = append(missing, obj)
		case cluster.Update:
			k.SayKept(obj, found[i], rewrite(writer))
		}
	}
	return k.Ensure(ctx, missing...)
}

// Compare returns the changes Ensure would make to each object. The administrators ask, so they get their role first.
func (k Keeper) Compare(ctx context.Context, objs []manifests.Object) ([]cluster.Difference, error) {
	if err := k.Cluster.EnsureAdmin(ctx); err != nil {
		return nil, err
	}
	found := make([]cluster.Difference, len(objs))
	group, ctx := errgroup.WithContext(ctx)
	for i, obj := range objs {
		group.Go(func() (err error) {
			found[i], err = k.Cluster.Compare(ctx, obj)
			return err
		})
	}
	return found, group.Wait()
}

// SayKept reports an object kept unchanged, and how to replace it.
func (k Keeper) SayKept(obj manifests.Object, d cluster.Difference, replace string) {
	ui.SayKept(k.UI, ui.Kept{
		Kind: obj.GetObjectKind().GroupVersionKind().Kind, Namespace: obj.GetNamespace(), Name: obj.GetName(),
		Summary: FieldDifference(obj, d), Remedy: remedy(replace),
		Now: shownFields(d.Before), Ours: shownFields(d.After),
	})
}

// FieldDifference names an object's differing fields.
func FieldDifference(obj manifests.Object, d cluster.Difference) string {
	if _, secret := obj.(*corev1.Secret); secret {
		return "values that are not shown"
	}
	const most = 6
	fields := d.Fields()
	if len(fields) > most {
		fields = append(fields[:most:most], fmt.Sprintf("and %d more", len(fields)-most))
	}
	return strings.Join(fields, ", ")
}

func shownFields(fields map[string]any) string {
	if fields == nil {
		return ""
	}
	data, err := yaml.Marshal(fields)
	if err != nil {
		return err.Error()
	}
	return Shown(data)
}

// rewrite names the phase that replaces a kept thing. By itself, a phase knows only the configuration that it's given.
func rewrite(writer string) string {
	return fmt.Sprintf("to replace it, run `slipway %s` with this run's configuration (--config)", writer)
}

func remedy(replace string) string {
	return "to see the whole difference, run the same command with --diff; " + replace
}

// stored has the configuration documents in ConfigMaps, by name, and their keys.
var stored = map[string]struct{ source, key string }{
	manifests.KubeadmConfigMap:   {config.ClusterSource, manifests.KubeadmConfigKey},
	manifests.KubeletConfigMap:   {config.KubeletSource, "kubelet"},
	manifests.KubeProxyConfigMap: {config.KubeProxySource, "config.conf"},
}

// KeepUnknown adds to the ConfigMaps in objs the cluster's fields unknown to this version: other versions or tools may need them.
func (k Keeper) KeepUnknown(ctx context.Context, objs []manifests.Object) error {
	for _, obj := range objs {
		cm, ok := obj.(*corev1.ConfigMap)
		if !ok || stored[cm.Name].key == "" {
			continue
		}
		if err := k.Cluster.EnsureAdmin(ctx); err != nil {
			return err
		}
		key := stored[cm.Name].key
		have, err := cluster.ConfigMapText(ctx, k.Cluster, cm.Namespace, cm.Name, key)
		if err != nil {
			return err
		}
		if have == "" {
			continue
		}
		data, warnings, err := config.MergeUnknownFields(stored[cm.Name].source, []byte(have), []byte(cm.Data[key]))
		if err != nil {
			return err
		}
		for _, w := range warnings {
			k.UI.Warnf("%s", w)
		}
		cm.Data[key] = string(data)
	}
	return nil
}
