// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/parallel"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// kubeletTimeout is how long a kubelet gets to renew its Lease in the restored cluster: six times its interval.
const kubeletTimeout = time.Minute

// settle waits until the kubelets and controllers that run work with the restored state, so that EndpointSlices lead to Pods that
// are there. The state has Nodes as they were: their kubelets show whether they're still there.
func (r *Restore) settle(ctx context.Context, env *step.Env) error {
	if err := r.acceptsWrites(ctx, env); err != nil {
		return err
	}
	if err := r.markAgain(ctx, env); err != nil {
		return err
	}
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	silent, err := r.awaitSettled(ctx, env, nodes)
	if err != nil {
		return err
	}
	now, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	r.nameNodes(env, nodes, now, silent)
	return nil
}

// awaitSettled waits for everything but silent Nodes, and returns their names.
func (r *Restore) awaitSettled(ctx context.Context, env *step.Env, nodes []corev1.Node) (silent []string, err error) {
	before, err := leaderLeases(ctx, env)
	if err != nil {
		return nil, err
	}
	env.UI.Printf("Waiting until the kubelets report, up to %s", kubeletTimeout)
	if silent, err = silentNodes(ctx, env, nodes); err != nil {
		return nil, err
	}
	works := &kubelets{}
	for i := range nodes {
		if !slices.Contains(silent, nodes[i].Name) {
			works.waiting = append(works.waiting, nodes[i].Name)
		}
	}
	limit := &env.Config.Timeouts.UpgradeManifests
	const failure = "the cluster has not settled in the restored state"
	env.UI.Printf("Waiting until Leases, kubelets and EndpointSlices fit the restored state, up to %s", *limit)
	err = env.Guard(ctx, limit, env.NodeTarget(), failure, func(ctx context.Context) error {
		return env.Cluster.AwaitNode(ctx, thisnode.RegisteredName(env.Host, env.Config), func(*corev1.Node, []corev1.Pod) error {
			return unsettled(ctx, env, before, silent, works)
		})
	})
	if err != nil {
		return nil, err
	}
	works.warnUnreached(env)
	return silent, nil
}

// leaderLeases returns when the controller manager and the scheduler last renewed their Leases, if they elect a leader at all.
func leaderLeases(ctx context.Context, env *step.Env) (renewed map[string]time.Time, err error) {
	renewed = map[string]time.Time{}
	for _, name := range []string{manifests.ControllerManagerName, manifests.SchedulerName} {
		pod, found := thisnode.StaticPod(env.Host, env.Config.Paths.StaticPod(name))
		if !found {
			continue
		}
		namespace, leaseName, known := electionOf(env, pod, name)
		if !known {
			continue
		}
		if renewed[name], err = cluster.RenewedAt(ctx, env.Cluster, namespace, leaseName); err != nil {
			return nil, err
		}
	}
	return renewed, nil
}

// electionOf returns the Lease with which a component elects its leader, by its flags and its file; known is false if it elects none,
// or has its file in its image.
func electionOf(env *step.Env, pod *corev1.Pod, component string) (namespace, name string, known bool) {
	var file struct {
		LeaderElection struct {
			LeaderElect                     *bool
			ResourceName, ResourceNamespace string
		}
	}
	data, _, err := readNamed(env, pod, "config")
	if err != nil || yaml.Unmarshal(data, &file) != nil {
		return "", "", false
	}
	of := file.LeaderElection
	elects := ptr.Deref(of.LeaderElect, true)
	if flag, err := strconv.ParseBool(manifests.FlagOf(pod, "leader-elect")); err == nil { // flags count before the file
		elects = flag
	}
	namespace = cmp.Or(manifests.FlagOf(pod, "leader-elect-resource-namespace"), of.ResourceNamespace, metav1.NamespaceSystem)
	return namespace, cmp.Or(manifests.FlagOf(pod, "leader-elect-resource-name"), of.ResourceName, component), elects
}

// silentNodes returns the names of the Nodes whose kubelets don't report. A report counts if it's newer than any in the restored
// state, so clocks that differ don't matter.
func silentNodes(ctx context.Context, env *step.Env, nodes []corev1.Node) (silent []string, err error) {
	limited, cancel := context.WithTimeout(ctx, min(kubeletTimeout, env.Config.Timeouts.UpgradeManifests))
	defer cancel()
	silent = parallel.Map(nodes, 0, func(n corev1.Node) string {
		since, err := lastReport(limited, env, &n)
		if err == nil {
			err = env.Cluster.AwaitReport(limited, n.Name, since)
		}
		if err == nil {
			return ""
		}
		return n.Name
	})
	return slices.DeleteFunc(silent, func(name string) bool { return name == "" }), context.Cause(ctx)
}

func lastReport(ctx context.Context, env *step.Env, n *corev1.Node) (time.Time, error) {
	last, err := cluster.RenewedAt(ctx, env.Cluster, corev1.NamespaceNodeLease, n.Name)
	if beat := cluster.Heartbeat(n); beat.After(last) {
		last = beat
	}
	return last, err
}

// unsettled says what doesn't fit yet: a leader hasn't renewed its Lease, a silent Node still counts as Ready, a kubelet doesn't work
// with the restored Pods, or an EndpointSlice has an endpoint that isn't a ready Pod.
func unsettled(ctx context.Context, env *step.Env, before map[string]time.Time, silent []string, works *kubelets) error {
	now, err := leaderLeases(ctx, env)
	if err != nil {
		return err
	}
	for name, renewed := range now {
		if renewed.Equal(before[name]) {
			return errors.Errorf("%s has not renewed its Lease since the restore", name)
		}
	}
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	for i := range nodes {
		if slices.Contains(silent, nodes[i].Name) && node.NodeReady(&nodes[i]) == nil {
			return errors.Errorf("node %s counts as Ready, and its kubelet does not report", nodes[i].Name)
		}
	}
	pods, err := env.Cluster.Pods(ctx, metav1.NamespaceAll, "")
	if err != nil {
		return err
	}
	if err := works.checkWaiting(ctx, env, pods); err != nil {
		return err
	}
	return strayEndpoint(ctx, env)
}

// strayEndpoint finds an endpoint that counts as ready, and whose Pod isn't. With publishNotReadyAddresses, endpoints count as ready in
// any case; whether they serve is true only of a ready Pod.
func strayEndpoint(ctx context.Context, env *step.Env) error {
	var slicesOfServices discoveryv1.EndpointSliceList
	managed := url.Values{"labelSelector": {discoveryv1.LabelManagedBy + "=endpointslice-controller.k8s.io"}}
	q := cluster.Query{Path: "/apis/discovery.k8s.io/v1/endpointslices", Params: managed}
	if err := cluster.ReadJSON(ctx, env.Cluster, q, cluster.LargestList, &slicesOfServices); err != nil {
		return err
	}
	pods, err := env.Cluster.Pods(ctx, metav1.NamespaceAll, "")
	if err != nil {
		return err
	}
	ready := map[types.UID]bool{}
	for i := range pods {
		ready[pods[i].UID] = cluster.PodReady(&pods[i])
	}
	for _, s := range slicesOfServices.Items {
		for _, e := range s.Endpoints {
			counts := ptr.Deref(e.Conditions.Ready, true) && ptr.Deref(e.Conditions.Serving, true)
			if pod := e.TargetRef; counts && pod != nil && pod.Kind == "Pod" && !ready[pod.UID] {
				return errors.Errorf("EndpointSlice %s/%s leads to Pod %s, which is not ready", s.Namespace, s.Name, pod.Name)
			}
		}
	}
	return nil
}
