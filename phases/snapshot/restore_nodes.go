// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
)

// markAgain marks this host's Node as a control plane if it joined after the snapshot: its kubelet registers it again, and may not mark
// it. The Node doesn't get the marks that it lacked before the restore, because an operator had removed them.
func (r *Restore) markAgain(ctx context.Context, env *step.Env) error {
	if r.journal.Since.IsZero() { // init marks its Node
		return nil
	}
	name, added := thisnode.RegisteredName(env.Host, env.Config), []string(nil)
	failure := "node " + name + " cannot be marked as a control plane"
	err := env.Guard(ctx, &env.Config.Timeouts.UpgradeManifests, env.NodeTarget(), failure, func(ctx context.Context) error {
		mark := cluster.Mark{}
		err := env.Cluster.AwaitNode(ctx, name, func(live *corev1.Node, _ []corev1.Pod) error {
			if mark = (cluster.Mark{}); registeredSince(live, r.journal.Since) {
				mark = r.marksToAdd(env, live)
			}
			return nil
		})
		if added = node.MarkNames(mark); err != nil || len(added) == 0 {
			return err
		}
		return env.Cluster.MarkNode(ctx, name, mark)
	})
	if err == nil && len(added) > 0 {
		env.UI.Warn(fmt.Sprintf("node %s has joined since the snapshot, so its kubelet has registered it again; it has got its %s back",
			name, strings.Join(added, ", ")), "all its other labels, annotations and taints are lost: add them again")
	}
	return err
}

// marksToAdd are none on a Node that has the label already: an earlier run has marked it.
func (r *Restore) marksToAdd(env *step.Env, live *corev1.Node) cluster.Mark {
	if _, marked := live.Labels[cluster.LabelControlPlane]; marked {
		return cluster.Mark{}
	}
	mark := node.MarkLacking(live, node.ControlPlaneMark(env.Config))
	maps.DeleteFunc(mark.Labels, func(label, _ string) bool { return slices.Contains(r.journal.Unmarked, "label "+label) })
	mark.Taints = slices.DeleteFunc(mark.Taints, func(t corev1.Taint) bool {
		return slices.Contains(r.journal.Unmarked, "taint "+t.ToString())
	})
	return mark
}

// registeredSince reports whether a Node isn't of the snapshot, but has been registered in the restored cluster. The API server, on this
// host, cuts times to seconds.
func registeredSince(n *corev1.Node, since time.Time) bool {
	return !since.IsZero() && !n.CreationTimestamp.Time.Before(since.Truncate(time.Second))
}

// nameNodes names the Nodes whose hosts don't fit the restored state. restored are the Nodes before the wait for silent, and now after
// it: kubelets may have restarted and registered their Nodes meanwhile.
func (r *Restore) nameNodes(env *step.Env, restored, now []corev1.Node, silent []string) {
	var unknown, again []string
	own := thisnode.RegisteredName(env.Host, env.Config)
	for _, name := range r.journal.Nodes {
		is := func(n corev1.Node) bool { return n.Name == name }
		switch i := slices.IndexFunc(now, is); {
		case name == own:
		case i < 0 && !slices.ContainsFunc(restored, is):
			unknown = append(unknown, name)
		case i >= 0 && registeredSince(&now[i], r.journal.Since):
			again = append(again, name)
		}
	}
	if len(unknown) > 0 {
		env.UI.Warn("these nodes have joined since the snapshot, so the cluster does not know them any more: "+strings.Join(unknown, ", "),
			"run `systemctl restart kubelet` on each: its kubelet registers the Node again. Their labels and taints are lost")
	}
	if len(again) > 0 {
		env.UI.Warn("these nodes have joined since the snapshot, and their kubelets have registered them again: "+strings.Join(again, ", "),
			"add the labels and taints that they had: these are lost")
	}
	for _, name := range silent {
		why := "its kubelet does not report"
		if len(r.journal.Nodes) > 0 && !slices.Contains(r.journal.Nodes, name) {
			why = "it had left the cluster after the snapshot"
		}
		env.UI.Warn(fmt.Sprintf("node %s is back with the snapshot, but %s", name, why),
			fmt.Sprintf("if its host is gone for good, `slipway reset node %s` removes it here", name))
	}
}
