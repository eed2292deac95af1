// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package thisnode

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/manifests"
)

// inAPI is the result of reading etcd's Pods in the API.
type inAPI struct {
	urls   []string
	silent []string // names of Pods without a URL
	// refused says why Pods aren't believed, invalid why URLs can't be used.
	refused, invalid []error
	unmarked         []string // Nodes of Pods refused for lack of the label
}

// lookUp asks the API. Members get an etcd administrator's client certificate, so only control planes may say where a member is,
// and only at their own addresses. own is the Node of a host whose member is known without the API; empty for none.
func lookUp(ctx context.Context, api cluster.Cluster, own string) (found inAPI, err error) {
	pods, err := api.Pods(ctx, metav1.NamespaceSystem, "component=etcd,tier=control-plane")
	if err != nil || len(pods) == 0 {
		return found, err
	}
	nodes, err := api.Nodes(ctx)
	if err != nil {
		return found, err
	}
	planes := cluster.ControlPlanesOf(nodes)
	believed, strays := planes.Pods(pods)
	for _, pod := range strays {
		node := pod.Spec.NodeName
		if node == own {
			continue
		}
		found.refused = append(found.refused, errors.Errorf("Pod %s/%s is on node %q, which is not a control plane: it lacks the label %s",
			pod.Namespace, pod.Name, node, cluster.LabelControlPlane))
		there := slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == node })
		if there && !slices.Contains(found.unmarked, node) {
			found.unmarked = append(found.unmarked, node)
		}
	}
	servers := serverAddresses(ctx, api)
	for _, pod := range believed {
		found.take(pod, func(host string) bool {
			return planes.Has(pod.Spec.NodeName, host) || slices.ContainsFunc(servers(), func(a string) bool { return cluster.SameHost(a, host) })
		})
	}
	return found, nil
}

// take adds a Pod's client URLs. mayBe reports whether a host may be the Pod's node.
func (found *inAPI) take(pod corev1.Pod, mayBe func(host string) bool) {
	named := false
	for text := range strings.SplitSeq(pod.Annotations[manifests.EtcdURLsAnnotation], ",") {
		text = strings.TrimSpace(text)
		if text == "" {
			continue
		}
		named = true
		if err := etcd.CheckClientURL(text); err != nil {
			found.invalid = append(found.invalid, errors.WithMessagef(err, "annotation %s of Pod %s/%s", manifests.EtcdURLsAnnotation, pod.Namespace, pod.Name))
			continue
		}
		if u, err := url.Parse(text); err != nil || !mayBe(u.Hostname()) {
			found.refused = append(found.refused, errors.Errorf("annotation %s of Pod %s/%s: %q is not an address of node %s",
				manifests.EtcdURLsAnnotation, pod.Namespace, pod.Name, text, pod.Spec.NodeName))
			continue
		}
		found.urls = append(found.urls, text)
	}
	if !named {
		found.silent = append(found.silent, pod.Name)
	}
}

// serverAddresses returns a function that asks, once, for the API servers' advertised addresses: only API servers write them. A
// control plane with several networks may advertise a different address there, and in etcd, than its kubelet reports. If they
// can't be read, the list is empty.
func serverAddresses(ctx context.Context, api cluster.Cluster) func() []string {
	return sync.OnceValue(func() (addresses []string) {
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", Namespace: metav1.NamespaceDefault}}
		if there, err := api.Get(ctx, slice); err != nil || !there {
			return nil
		}
		for _, e := range slice.Endpoints {
			addresses = append(addresses, e.Addresses...)
		}
		return addresses
	})
}
