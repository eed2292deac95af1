// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfiguring

import (
	"net"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
)

// Annotations of ConfigMap kubeadm-config, for nodes following later: only control planes can write them.
const (
	// FormerEndpoints has each former host:port of the cluster's endpoint. A kubeconfig file with any of them follows the
	// endpoint; any other leads where an operator wants it to.
	FormerEndpoints = "slipway/former-endpoints"
	// removedNames has the names of former endpoints taken out of apiServer.certSANs: certificates lose them. Any
	// other name in a certificate stays: it may be somebody's addition, and a list replaces the list, so it may only be forgotten.
	removedNames = "slipway/removed-names"
)

// noted returns a list in an annotation.
func noted(cm cluster.Object, annotation string) []string {
	return strings.FieldsFunc(cm.GetAnnotations()[annotation], func(r rune) bool { return r == ',' })
}

// Notes are the annotations after this change.
func (c *Change) Notes() map[string]string {
	return map[string]string{FormerEndpoints: strings.Join(c.Former, ","), removedNames: strings.Join(c.Removed, ",")}
}

// MovesEndpoint reports whether the cluster's controlPlaneEndpoint changes.
func (c *Change) MovesEndpoint() bool {
	return slices.ContainsFunc(c.Fields, func(f Field) bool { return f.Source == config.ClusterSource && f.Path == "controlPlaneEndpoint" })
}

// keepFormerName keeps the name of a changed endpoint in the API server's certificates: nodes still use it, until they follow. Another
// change takes it out. An API server always has its own address.
func keepFormerName(present, next *config.Node) *config.Node {
	former := present.EndpointHost()
	if former == "" || present.Endpoint() == next.Endpoint() || slices.Contains(apiNames(next), strings.ToLower(former)) {
		return next
	}
	return next.With(func(n *config.Node) {
		n.Cluster.APIServer.CertSANs = append(slices.Clone(n.Cluster.APIServer.CertSANs), former)
	})
}

// apiNames are the names and addresses in the configuration for the API servers' certificates.
func apiNames(n *config.Node) (names []string) {
	for _, name := range append(slices.Clone(n.Cluster.APIServer.CertSANs), n.EndpointHost()) {
		if name != "" {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// noteEndpoint notes a changed endpoint.
func (c *Change) noteEndpoint(present, next *config.Node) {
	if c.MovesEndpoint() {
		c.Former = append(c.Former, strings.ToLower(present.Endpoint()))
	}
	c.Former = without(c.Former, strings.ToLower(next.Endpoint()))
}

// noteNames notes the names for the certificates to lose.
func (c *Change) noteNames(present, next *config.Node) {
	wanted := apiNames(next)
	for _, name := range without(apiNames(present), wanted...) {
		was := func(endpoint string) bool {
			host, _, err := net.SplitHostPort(endpoint)
			return err == nil && host == name
		}
		if slices.ContainsFunc(c.Former, was) {
			c.Removed = append(c.Removed, name)
		}
	}
	c.Removed = without(c.Removed, wanted...)
}

// without returns a sorted list without some entries.
func without(list []string, entries ...string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(entries, s) })
	slices.Sort(list)
	return slices.Compact(list)
}
