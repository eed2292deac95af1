// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package inventory collects the input of internal/breakages before an upgrade. Sources says where to look: the API, etcd's
// members, and this control plane's files (Here). Collect returns an Inventory, and Inventory.Check its findings. A source that
// can't be read becomes the finding not-checked.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

type Sources struct {
	API   cluster.Cluster
	Own   cluster.Cluster // this host's API server; nil if it can't be asked apart from the others
	State *upgrading.State
	Here  *Here     // this control plane; nil on another host, and without root's rights
	Etcd  etcd.Etcd // nil if this host can't ask its members
}

type Here struct {
	Host preflight.View
	Node *config.Node
	// Wanted maps components to the static Pods that the upgrade writes, without those it leaves alone.
	Wanted  map[string][]byte
	Kubelet []byte // its configuration as the upgrade writes it; nil for the current configuration
}

// Check returns what an upgrade to Node's version breaks in this host's kubelet, static Pods and, with Wanted static Pods,
// control plane. n is the cluster's view of this host; etcd is as for Inventory.Check.
func (h *Here) Check(ctx context.Context, n upgrading.NodeVersions, etcd func(minor string) string) []fault.Finding {
	c := &collector{Sources: Sources{Here: h}}
	c.inputs.Kubelets = []breakages.Kubelet{c.kubeletHere(ctx, n, nil)}
	c.wantedPods()
	c.staticPodsHere()
	return c.Check(cmp.Or(n.APIServer, n.Kubelet), h.Node.Cluster.KubernetesVersion, etcd)
}

type Inventory struct {
	inputs  breakages.Inputs
	gaps    []fault.Finding
	Members []etcd.Health // etcd's members with their health; empty if they couldn't be asked
}

// collector fills an Inventory. Its methods with a context run side by side: each sets its own fields of inputs, or holds mu.
type collector struct {
	Sources
	desired *config.Node // the cluster's stored configuration
	// from is the minor release of the oldest API server, oldest also considers kubelets and kube-proxy.
	from, oldest string

	mu sync.Mutex
	Inventory
}

// Collect looks everywhere, side by side. Only an unreadable stored configuration is an error; the rest become findings.
func Collect(ctx context.Context, s Sources) (*Inventory, error) {
	desired, _, err := config.LoadCluster(s.State.Stored, nil, nil, nil, config.Options{AnyVersion: true, Placeholders: true})
	if err != nil {
		return nil, err
	}
	c := &collector{Sources: s, desired: desired}
	c.from, c.oldest = releases.MinorOf(s.State.Oldest()), oldestOf(s.State)
	c.commands()
	c.hostFiles()
	var group sync.WaitGroup
	for _, look := range []func(context.Context){
		c.kubelets, c.proxies, c.members, c.apiUse, c.metrics, c.pods, c.roles, c.budgets, c.webhooks, c.customResources, c.systemNamespace,
	} {
		group.Go(func() { look(ctx) })
	}
	group.Wait()
	gaps, uses := c.gaps, c.inputs.APIUse
	sort.SliceStable(gaps, func(i, j int) bool { return gaps[i].Subject < gaps[j].Subject })
	sort.SliceStable(uses, func(i, j int) bool { return uses[i].Where < uses[j].Where })
	return &c.Inventory, nil
}

// Check returns what an upgrade breaks or couldn't be checked. etcd is its version in a minor such as 1.37; nil if it stays.
func (i *Inventory) Check(from, to string, etcd func(minor string) string) []fault.Finding {
	in := i.inputs
	in.From, in.To, in.EtcdVersion = from, to, etcd
	return append(breakages.Check(in), i.gaps...)
}

// gap adds a finding about something the collector couldn't read.
func (c *collector) gap(subject, field, remedy, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gaps = append(c.gaps, fault.Finding{Name: breakages.NotChecked, Severity: fault.Unasked, Subject: subject, Field: field,
		Message: fmt.Sprintf(format, args...), Remedy: remedy})
}

// crosses reports whether an upgrade from oldest may make the step to minor. Otherwise things only that step breaks don't matter.
func crosses(oldest, minor string) bool {
	from, known := releases.Of(oldest)
	to, _ := releases.Of(minor)
	return !known || to.After(from)
}

// Limits for a plan, which must be fast and not burden a large cluster. If they cut a list short, a finding says so.
const (
	pageSize   = 500  // objects in an answer
	maxObjects = 2000 // of one kind
	maxNodes   = 50   // nodes whose kubelets are asked, control planes' first
	asksAtOnce = 8    // requests to kubelets, side by side
	// answerTimeout bounds requests through the API server to kubelets and other API servers, which may be down.
	answerTimeout = 3 * time.Second
	// largestAnswer is the limit for a kubelet's answer, in bytes.
	largestAnswer = 8 << 20
	// LargestFile is the limit for a configuration file named in a flag, in bytes.
	LargestFile = 1 << 20
)

type page[T any] struct {
	Metadata metav1.ListMeta `json:"metadata"`
	Items    []T             `json:"items"`
}

// list reads objects in pages; left is how many there are beyond maxObjects. A path unknown to the API gives an empty list.
func list[T any](ctx context.Context, api cluster.Cluster, path, accept string) (items []T, left int64, err error) {
	params := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		var p page[T]
		err := cluster.ReadJSON(ctx, api, cluster.Query{Path: path, Params: params, Accept: accept}, cluster.LargestList, &p)
		if apierrors.IsNotFound(err) {
			return items, 0, nil
		}
		if err != nil {
			return items, 0, err
		}
		items = append(items, p.Items...)
		if p.Metadata.Continue == "" {
			return items, 0, nil
		}
		if len(items) >= maxObjects {
			if n := p.Metadata.RemainingItemCount; n != nil {
				return items, *n, nil
			}
			return items, 1, nil
		}
		params.Set("continue", p.Metadata.Continue)
	}
}

// listed is list, with findings for missing objects. what names the objects in messages: "Pods".
func listed[T any](ctx context.Context, c *collector, path, what string) []T {
	items, left, err := list[T](ctx, c.API, path, "")
	c.incomplete(what, path, left, err)
	return items
}

// incomplete reports a list that wasn't read to its end.
func (c *collector) incomplete(what, path string, left int64, err error) {
	switch {
	case err != nil:
		c.gap(what, path, "check the API server and your rights (kubectl auth can-i list), and plan again", "%s were not checked: %v", what, err)
	case left > 0:
		c.gap(what, path, "look at the others yourself", "%s: only the first %d were checked, at least %d were not", what, maxObjects, left)
	}
}

// oldestOf returns the minor release of the oldest API server, kubelet or kube-proxy, such as 1.36.
func oldestOf(s *upgrading.State) string {
	return releases.MinorOf(oldestText([]string{s.Oldest(), s.KubeProxy, oldestKubelet(s)}))
}

// oldestText returns the oldest version; empty if none is known.
func oldestText(texts []string) string {
	oldest, _ := releases.Span(texts)
	if oldest == nil {
		return ""
	}
	return "v" + oldest.String()
}

// members asks etcd for its members' versions, or takes them from its Pods' images, but without health.
func (c *collector) members(ctx context.Context) {
	external := c.desired.Cluster.Etcd.External != nil
	if c.Etcd == nil {
		c.gap("etcd", "health", "run `slipway upgrade plan` as root on a control plane, whose certificates etcd accepts",
			"the health of etcd was not checked, because this host has no certificate for it")
	} else {
		c.askMembers(ctx, external)
	}
	if len(c.inputs.Etcd) > 0 || external {
		return
	}
	for _, component := range c.State.Components {
		if component.Name == manifests.EtcdName {
			v, _, _ := strings.Cut(component.Version, "-") // etcd's version, then the image's
			c.inputs.Etcd = append(c.inputs.Etcd, breakages.EtcdMember{Where: "etcd on " + component.Node, Version: v})
		}
	}
}

// askMembers asks each member. The health check reports members that don't answer.
func (c *collector) askMembers(ctx context.Context, external bool) {
	var err error
	if c.Members, err = c.Etcd.Health(ctx); err != nil {
		c.gap("etcd", "health", "check etcd: `slipway diagnose` on its nodes says what is wrong", "etcd was not checked: %v", err)
	}
	for _, m := range c.Members {
		if m.Answers {
			where := "etcd member " + cmp.Or(m.Name, m.PeerURL)
			c.inputs.Etcd = append(c.inputs.Etcd, breakages.EtcdMember{Where: where, Version: m.Status.Version, External: external})
		}
	}
}
