// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/manifests"
)

// apiUse finds users of API versions that a later release doesn't serve. It reads only metadata, and only of the tables' kinds.
func (c *collector) apiUse(ctx context.Context) {
	release, _ := releases.Of(c.from)
	groups := map[string][]schema.GroupVersionKind{}
	for _, name := range release.Leaving() {
		apiVersion, kind, _ := strings.Cut(name, " ")
		gvk := schema.FromAPIVersionAndKind(apiVersion, kind)
		if gvk.Group != "" { // the rest of the core group has one version
			groups[gvk.Group] = append(groups[gvk.Group], gvk)
		}
	}
	var wait sync.WaitGroup
	for group, kinds := range groups {
		wait.Go(func() {
			served, err := c.served(ctx, group)
			if err != nil {
				c.gap("API group "+group, group, "check the API server, and plan again", "API group %s was not checked: %v", group, err)
				return
			}
			slices.SortStableFunc(kinds, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
			for i, gvk := range kinds {
				c.stored(ctx, gvk, served)
				if i == 0 || kinds[i-1].Kind != gvk.Kind {
					c.managers(ctx, gvk.Kind, kinds, served)
				}
			}
		})
	}
	wait.Wait()
}

// resource is a kind in a version that the API serves now.
type resource struct {
	metav1.APIResource
	version string
}

func (r resource) path(group string) string { return "/apis/" + group + "/" + r.version + "/" + r.Name }

// served returns a group's resources in all versions, the preferred version first; none if there's no such group.
func (c *collector) served(ctx context.Context, group string) ([]resource, error) {
	var g metav1.APIGroup
	err := cluster.ReadJSON(ctx, c.API, cluster.Query{Path: "/apis/" + group}, cluster.LargestList, &g)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []resource
	for _, v := range g.Versions {
		var list metav1.APIResourceList
		q := cluster.Query{Path: "/apis/" + group + "/" + v.Version}
		if err := cluster.ReadJSON(ctx, c.API, q, cluster.LargestList, &list); err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				all = append(all, resource{r, v.Version})
			}
		}
	}
	return all, nil
}

// stored finds objects stored in a version. Discovery identifies the version by a hash.
func (c *collector) stored(ctx context.Context, gvk schema.GroupVersionKind, served []resource) {
	i := slices.IndexFunc(served, func(r resource) bool { return r.Kind == gvk.Kind && r.StorageVersionHash == storageHash(gvk) })
	if i < 0 {
		return
	}
	items, left, err := list[metav1.PartialObjectMetadata](ctx, c.API, served[i].path(gvk.Group), cluster.MetadataList)
	c.incomplete(gvk.Kind+" objects", served[i].path(gvk.Group), left, err)
	if len(items) > 0 {
		c.use(breakages.APIUse{Where: some(gvk.Kind, items), APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind})
	}
}

// storageHash is discovery's name for the version in which it stores a kind:
// https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/2436-storage-version-hash
func storageHash(gvk schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(gvk.Group + "/" + gvk.Version + "/" + gvk.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// managers finds clients that write a kind in a version that goes away, except for the control plane, which gets upgraded.
func (c *collector) managers(ctx context.Context, kind string, leaving []schema.GroupVersionKind, served []resource) {
	i := slices.IndexFunc(served, func(r resource) bool { return r.Kind == kind })
	if i < 0 {
		return
	}
	group := leaving[0].Group
	items, left, err := list[metav1.PartialObjectMetadata](ctx, c.API, served[i].path(group), cluster.MetadataList)
	c.incomplete(kind+" objects", served[i].path(group), left, err)
	type use struct{ apiVersion, manager string }
	objects := map[use][]metav1.PartialObjectMetadata{}
	var order []use
	for _, item := range items {
		for _, entry := range item.ManagedFields {
			u := use{entry.APIVersion, entry.Manager}
			gone := slices.ContainsFunc(leaving, func(gvk schema.GroupVersionKind) bool {
				return gvk.Kind == kind && gvk.GroupVersion().String() == u.apiVersion
			})
			if !gone || slices.Contains(manifests.Components(c.desired), u.manager) {
				continue
			}
			if objects[u] == nil {
				order = append(order, u)
			}
			objects[u] = append(objects[u], item)
		}
	}
	for _, u := range order {
		c.use(breakages.APIUse{Where: some(kind, objects[u]), APIVersion: u.apiVersion, Kind: kind, Manager: u.manager})
	}
}

func (c *collector) use(u breakages.APIUse) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inputs.APIUse = append(c.inputs.APIUse, u)
}

// some names the first of several objects.
func some(kind string, items []metav1.PartialObjectMetadata) string {
	name := strings.TrimPrefix(items[0].Namespace+"/"+items[0].Name, "/")
	if len(items) > 1 {
		return fmt.Sprintf("%s %s and %d more", kind, name, len(items)-1)
	}
	return kind + " " + name
}

// requestedMetric is the metric that breakages reads; the others are several megabytes.
const requestedMetric = "apiserver_requested_deprecated_apis"

// metrics reads which deprecated APIs clients have requested from an API server. Each counts on its own, but only this host's, or
// the one behind all requests, gets the user's credentials, never an address from the API.
func (c *collector) metrics(ctx context.Context) {
	var nodes []string
	for _, component := range c.State.Components {
		if component.Name == manifests.APIServerName && !slices.Contains(nodes, component.Node) {
			nodes = append(nodes, component.Node)
		}
	}
	api, where := c.API, "the API server that was asked"
	switch {
	case len(nodes) == 1:
		where, nodes = manifests.APIServerName+" on "+nodes[0], nil
	case c.Own != nil && c.Here != nil:
		own := func(name string) bool { return name == c.Here.Node.Name }
		api, where, nodes = c.Own, manifests.APIServerName+" on "+c.Here.Node.Name, slices.DeleteFunc(nodes, own)
	}
	if len(nodes) > 0 {
		c.gap(manifests.APIServerName, "metrics of others", "run `slipway upgrade plan` as root on each control plane",
			"requests for deprecated APIs are counted by each API server, and these were not all asked: %s", strings.Join(nodes, ", "))
	}
	limited, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	var kept bytes.Buffer
	err := api.Read(limited, cluster.Query{Path: "/metrics", Accept: "text/plain"}, func(r io.Reader) error {
		return eachLine(r, func(line []byte) {
			if bytes.Contains(line, []byte(requestedMetric)) {
				kept.Write(line)
				kept.WriteByte('\n')
			}
		})
	})
	if err != nil {
		c.gap(where, "metrics", "look at them there: kubectl get --raw /metrics", "%s: its requests for deprecated APIs were not checked: %v", where, err)
		return
	}
	c.inputs.Metrics = []breakages.File{{Where: where, Data: kept.Bytes()}}
}
