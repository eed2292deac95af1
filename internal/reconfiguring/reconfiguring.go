// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package reconfiguring computes a change to a live cluster's configuration. Loader.Load merges a user's documents over the stored
// ones; the resulting Change has the differing fields. immutable.go rejects fixed fields. Loader.To goes back to
// earlier texts. It writes nothing: phases/reconfigure makes the change. docs/design/reconfigure.md has the reasons.
package reconfiguring

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/pkg/errors"
	"gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/host"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
)

// Change is a change of a cluster's configuration, as a control plane sees it.
type Change struct {
	// Node is the control plane afterwards. Its Upgrade has the one before.
	Node *config.Node
	// Fields are the changed fields.
	Fields []Field
	// Stored are the texts before the change.
	Stored Texts
	// Former are the cluster's former endpoints, and Removed those of their names that certificates lose.
	Former, Removed []string
	previous        string // the annotation PreviousConfiguration
}

// Field is a changed field of a stored configuration. Lists change as a whole.
type Field struct {
	// Source is the configuration's ConfigMap, such as config.ClusterSource.
	Source, Path  string
	Before, After any // nil for none
}

// Changes reports whether a field of a stored configuration changes.
func (c *Change) Changes(source string) bool {
	return slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Source == source })
}

// row is a stored configuration.
type row struct {
	source, configMap, key string
	document               func(*config.Node) ([]byte, error)
}

func rows() []row {
	return []row{
		{config.ClusterSource, manifests.KubeadmConfigMap, manifests.KubeadmConfigKey, (*config.Node).KubeadmConfigYAML},
		{config.KubeletSource, manifests.KubeletConfigMap, "kubelet", (*config.Node).KubeletYAML},
		{config.KubeProxySource, manifests.KubeProxyConfigMap, "config.conf", (*config.Node).KubeProxyYAML},
	}
}

// Loader computes changes of a cluster's configuration.
type Loader struct {
	API     cluster.Cluster
	Self    *config.JoinConfiguration // this node as it is
	Options config.Options
}

// NewLoader returns a loader for the node h.
func NewLoader(h host.Host, api cluster.Cluster, opts config.Options) Loader {
	self := thisnode.Current(h)
	if !thisnode.IsControlPlane(h) {
		self.ControlPlane = nil
	}
	return Loader{api, self, opts}
}

// Load merges the documents in src over the cluster's stored configuration. Invalid input, and a field that can't change, are
// returned as config.Faults at their lines.
func (l Loader) Load(ctx context.Context, src *config.Source) (*Change, []string, error) {
	parts, warnings, err := config.LoadParts(src)
	if err != nil {
		return nil, warnings, err
	}
	c, more, err := l.loadParts(ctx, parts)
	if warnings = append(warnings, more...); err != nil {
		return nil, warnings, err
	}
	return c, warnings, refused(c.Node.Upgrade.Before, c.Node, c.Fields, parts)
}

// loadParts is Load for any field.
func (l Loader) loadParts(ctx context.Context, parts map[string]config.Part) (*Change, []string, error) {
	c, present, merged, err := l.mergeStored(ctx, parts)
	if err != nil {
		return nil, nil, err
	}
	return l.complete(c, present, merged, parts)
}

// mergeStored merges parts over the cluster's stored configuration.
func (l Loader) mergeStored(ctx context.Context, parts map[string]config.Part) (c *Change, present *config.Node, merged documents, err error) {
	c, stored, err := l.read(ctx, rows(), parts)
	if err != nil {
		return nil, nil, nil, err
	}
	if present, _, err = l.node(stored); err != nil {
		return nil, nil, nil, err
	}
	merged, err = merge(present, stored, parts)
	return c, present, merged, err
}

// complete makes c the change from the present configuration to the merged one.
func (l Loader) complete(c *Change, present *config.Node, merged documents, parts map[string]config.Part) (*Change, []string, error) {
	next, warnings, err := l.node(merged)
	if err != nil {
		return nil, nil, located(err, parts)
	}
	next = keepFormerName(present, next)
	if c.Fields, err = differences(present, next, parts); err != nil {
		return nil, nil, err
	}
	c.noteEndpoint(present, next)
	c.noteNames(present, next)
	c.Node = changed(present, next)
	return c, warnings, nil
}

// changed is the node after a change.
func changed(present, next *config.Node) *config.Node {
	return next.With(func(n *config.Node) {
		version := n.Cluster.KubernetesVersion
		n.Upgrade = &config.Upgrade{Version: version, From: version, First: true, Etcd: true, Before: present}
	})
}

// documents are the stored configurations' texts, by source. A missing one is generated.
type documents map[string][]byte

// node is this node with a configuration.
func (l Loader) node(d documents) (*config.Node, []string, error) {
	l.Options.Placeholders = true
	return config.LoadCluster(d[config.ClusterSource], d[config.KubeletSource], d[config.KubeProxySource], l.Self, l.Options)
}

// read reads the ConfigMaps, and begins a change of them. One that the user's documents are about must exist.
func (l Loader) read(ctx context.Context, rows []row, parts map[string]config.Part) (*Change, documents, error) {
	c, stored := &Change{Stored: Texts{}}, documents{}
	for _, r := range rows {
		cm := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: r.configMap, Namespace: metav1.NamespaceSystem},
		}
		found, err := l.API.Get(ctx, cm)
		if err != nil {
			return nil, nil, err
		}
		_, wanted := parts[r.source]
		text, missing := cm.Data[r.key], r.source+" does not exist or has no key "+r.key
		if r.source == config.KubeProxySource && text != "" && cluster.LacksKubeProxy(ctx, l.API) {
			text, missing = "", r.source+" is not in use, as DaemonSet kube-system/kube-proxy does not exist"
		}
		if text == "" && (wanted || r.source == config.ClusterSource) {
			return nil, nil, fault.New(missing+", so there is nothing to change", "create it with `slipway init phase upload-config all` or, for kube-proxy, `slipway init phase addon kube-proxy`, and the cluster's configuration (--config)")
		}
		if found && text != "" {
			stored[r.source], c.Stored[r.configMap] = []byte(text), text
		}
		if r.source == config.ClusterSource {
			c.previous = cm.Annotations[PreviousConfiguration]
			c.Former, c.Removed = noted(cm, FormerEndpoints), noted(cm, removedNames)
		}
	}
	return c, stored, nil
}

// merge returns the stored configurations with the user's changes, by RFC 7396: a field that isn't mentioned stays, null takes a
// field back to its default, and a list replaces the list.
func merge(present *config.Node, stored documents, parts map[string]config.Part) (documents, error) {
	merged := maps.Clone(stored)
	for _, r := range rows() {
		if _, given := parts[r.source]; !given {
			continue
		}
		base, err := r.document(present)
		if err != nil {
			return nil, err
		}
		if merged[r.source], err = yaml.YAMLToJSON(base); err != nil {
			return nil, errors.WithStack(err)
		}
	}
	return merged, merged.patch(parts)
}

// patch changes the documents, which are JSON, as the parts say.
func (d documents) patch(parts map[string]config.Part) error {
	for source, part := range parts {
		patch, err := json.Marshal(part.Fields)
		if err != nil {
			return errors.WithStack(err)
		}
		if d[source], err = jsonpatch.MergePatch(d[source], patch); err != nil {
			return errors.Wrap(err, source)
		}
	}
	return nil
}

// located moves faults of the merged configuration to the user's lines behind them.
func located(err error, parts map[string]config.Part) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	faults = slices.Clone(faults)
	for i, f := range faults {
		faults[i], _ = parts[f.File].Locate(f)
	}
	return faults
}

// differences compares the stored configurations, with defaults applied, that the user's documents are about: in the others,
// fields only follow.
func differences(present, next *config.Node, parts map[string]config.Part) (fields []Field, err error) {
	for _, r := range rows() {
		if _, given := parts[r.source]; !given {
			continue
		}
		var trees [2]map[string]any
		for i, n := range []*config.Node{present, next} {
			data, err := r.document(n)
			if err != nil {
				return nil, err
			}
			if err := yaml.Unmarshal(data, &trees[i]); err != nil {
				return nil, errors.WithStack(err)
			}
		}
		fields = append(fields, compared(r.source, "", trees[0], trees[1])...)
	}
	return fields, nil
}

func compared(source, path string, before, after any) (fields []Field) {
	a, isMap := before.(map[string]any)
	b, areMaps := after.(map[string]any)
	if !isMap || !areMaps {
		if reflect.DeepEqual(before, after) {
			return nil
		}
		return []Field{{source, path, before, after}}
	}
	names := maps.Clone(a)
	maps.Copy(names, b)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		below := name
		if path != "" {
			below = path + "." + name
		}
		fields = append(fields, compared(source, below, a[name], b[name])...)
	}
	return fields
}
