// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package reconfigure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/reconfiguring"
	"github.com/slipway-k8s/slipway/internal/ui"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// NodePhases returns the workflow of `reconfigure node`: this node gets the cluster's stored configuration, on trial. It stores
// nothing.
func (r *Run) NodePhases() []step.Phase {
	phase := func(name, summary string, run func(context.Context, *step.Env) error) step.Phase {
		return step.Phase{Name: name, Summary: summary, Run: r.rollBackOnFailure(run)}
	}
	certificates := phase("certificates", "Issue certificates with new names", r.issueCertificates)
	components := phase("control-plane", "Restart the components whose static Pods change, on trial", r.restartComponents)
	certificates.Skip, components.Skip = node.UnlessControlPlane, node.UnlessControlPlane
	return r.confirming([]step.Phase{
		phase("preflight", "Check that this node can change, and pull its images", r.nodePreflight),
		phase("prepare", "Find the changes, take a control plane's turn, and keep the files that change", r.prepare),
		certificates,
		phase("kubeconfig", "Point this node's clients at the API's endpoint, if it has changed", r.redirectClients),
		components,
		phase("kubelet-config", "Restart the kubelet with its new settings, on trial", r.restartKubelet),
		phase("finish", "Release the Lease", r.end),
		kubelet.ServingCertificate(),
	}, "finish")
}

func (r *Run) nodePreflight(ctx context.Context, env *step.Env) error {
	if err := r.recordInspectedFiles(env); err != nil {
		return err
	}
	if r.Reverts != nil {
		return r.revertPreflight(ctx, env)
	}
	env.UI.Printf("Comparing this node with the cluster's configuration")
	checks := r.controlPlaneChecks(env)
	if !env.Config.ControlPlane {
		checks = nil
	}
	return check(ctx, env, slices.Concat(checks, []preflight.Check{kubeletCheck(env), r.overridesQuestion(env)}, r.endpointChecks(env)))
}

// kubeletName is the kubelet's name in a plan.
const kubeletName = "kubelet"

// maxNamed is how many nodes the last message names of each kind.
const maxNamed = 8

// reportOtherNodes names the nodes without the change.
func (r *Run) reportOtherNodes(ctx context.Context, env *step.Env) error {
	ofKubelets := r.Changes(config.KubeletSource) || r.MovesEndpoint()
	if !ofKubelets && !slices.ContainsFunc(r.Fields, isOfControlPlanes) {
		return nil
	}
	nodes, err := env.Cluster.Nodes(ctx)
	if err != nil {
		return err
	}
	planes := cluster.ControlPlanesOf(nodes)
	var others, workers []string
	for _, name := range slices.Sorted(maps.Keys(planes)) {
		if name != env.Config.Name {
			others = append(others, name)
		}
	}
	for _, n := range nodes {
		if planes[n.Name] == nil && ofKubelets {
			workers = append(workers, n.Name)
		}
	}
	restarts := restarting(r.components)
	if r.Changes(config.KubeletSource) {
		restarts = append(restarts, kubeletName)
	}
	reportFollowers(env, "the other control planes, one after another", others, restarts)
	reportFollowers(env, "each worker", workers, []string{kubeletName})
	if r.MovesEndpoint() {
		env.UI.Nextf("Replace copies of admin.conf. Until you take the former endpoint's name out of apiServer.certSANs, it works as before")
	}
	return nil
}

// reportFollowers names nodes that get the change by a command of their own, and what that restarts there.
func reportFollowers(env *step.Env, on string, nodes, restarts []string) {
	if len(nodes) == 0 {
		return
	}
	e := ui.Effect{Text: fmt.Sprintf("Run `slipway reconfigure node` on %s: %s", on, namesOf(nodes))}
	if len(restarts) > 0 {
		e.Text += ". There, it restarts " + strings.Join(restarts, ", ")
	}
	for _, name := range nodes {
		e.Others = append(e.Others, ui.OtherNode{Name: name, Command: "reconfigure node", Restarts: restarts})
	}
	ui.SayEffect(env.UI, e)
}

// isOfControlPlanes reports whether control planes have to change for a field. The add-ons have changed already.
func isOfControlPlanes(f reconfiguring.Field) bool {
	return f.Source == config.ClusterSource && !strings.HasPrefix(f.Path, "dns.")
}

func namesOf(nodes []string) string {
	slices.Sort(nodes)
	if more := len(nodes) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(nodes[:maxNamed], ", "), more)
	}
	return strings.Join(nodes, ", ")
}
