// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

// Package inventory collects what an upgrade can break, for internal/breakages: from the API, etcd's members and, on a control
// plane, this host's files. It only reads, within the limits in bounds.go. Anything it can't read becomes a finding, not-checked.
package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
	"github.com/slipway-k8s/slipway/internal/upgrading"
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
	Kubelet []byte // its configuration as the upgrade writes it; nil for the current one
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
	slices.SortStableFunc(c.gaps, func(a, b fault.Finding) int { return cmp.Compare(a.Subject, b.Subject) })
	slices.SortStableFunc(c.inputs.APIUse, func(a, b breakages.APIUse) int { return cmp.Compare(a.Where, b.Where) })
	return &c.Inventory, nil
}

// Check returns what an upgrade breaks, and what wasn't checked. etcd returns the members' version in a minor release such as
// 1.37; nil if they stay.
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

// crosses reports whether an upgrade from release oldest may make the step to minor. If not, there's no need to collect things
// that only this step breaks.
func crosses(oldest, minor string) bool {
	from, known := releases.Of(oldest)
	to, _ := releases.Of(minor)
	return !known || to.After(from)
}
