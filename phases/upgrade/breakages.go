// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pkg/errors"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/breakages"
	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/corefile"
	"github.com/slipway-k8s/slipway/internal/etcd"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/inventory"
	"github.com/slipway-k8s/slipway/internal/thisnode"
	"github.com/slipway-k8s/slipway/internal/upgrading"
	"github.com/slipway-k8s/slipway/phases/addon"
	"github.com/slipway-k8s/slipway/phases/edits"
	"github.com/slipway-k8s/slipway/phases/kubelet"
	"github.com/slipway-k8s/slipway/phases/node"
	"github.com/slipway-k8s/slipway/phases/step"
	"github.com/slipway-k8s/slipway/preflight"
)

// inventoryTimeout limits each half of the checks: an API that's away takes the cluster's, not this host's. It's 30 s by default. A
// user who raises the limit of calls has a slow cluster, whose checks would run out of time without having seen anything.
func inventoryTimeout(env *step.Env) time.Duration {
	return max(30*time.Second, env.Config.Timeouts.KubernetesAPICall/2)
}

// upgradeBreakages returns the checks for breakages by the upgrade and for faults of this host, one for each kind of finding.
func upgradeBreakages(ctx context.Context, env *step.Env) []preflight.Check {
	limited, cancel := context.WithTimeout(ctx, inventoryTimeout(env))
	defer cancel()
	var found []fault.Finding
	var members []etcd.Health
	if env.Config.Upgrade.First {
		found, members = clusterBreakages(limited, env)
	} else { // `upgrade apply` has checked the cluster, but can't see a host's flags and files
		found = ownBreakages(limited, env)
	}
	limited, cancelHost := context.WithTimeout(ctx, inventoryTimeout(env))
	defer cancelHost()
	found = slices.DeleteFunc(append(found, faultsHere(limited, env, members)...), func(f fault.Finding) bool {
		return f.Name == imagesCheck && f.Severity != fault.Error // the upgrade pulls them next
	})
	for i := range found {
		if found[i].Severity == fault.Unasked {
			found[i].Severity = fault.Warning
		}
	}
	return asQuestions(found)
}

// clusterBreakages finds what `upgrade apply` breaks, and returns etcd's members if it could ask them.
func clusterBreakages(ctx context.Context, env *step.Env) ([]fault.Finding, []etcd.Health) {
	state, err := lookFromHere(ctx, env)
	if err != nil {
		return notChecked(err), nil
	}
	sources := inventory.Sources{API: env.Cluster, Etcd: env.Etcd}
	if env.Config.Paths.AdminKubeconfig == config.DefaultAdminKubeconfig { // otherwise the user has named a server
		sources.Own = env.Cluster
	}
	there, err := Inventory(ctx, env, state, sources)
	if err != nil {
		return notChecked(err), nil
	}
	return slices.Concat(strayPods(state), unmarkedHere(env, state.Hosts), findBreakages(env.Config, state, there)), there.Members
}

// faultsHere finds faults of this host, whether or not the cluster could be checked. It asks etcd unless members are known.
func faultsHere(ctx context.Context, env *step.Env, members []etcd.Health) (found []fault.Finding) {
	if !env.Config.ControlPlane {
		return edits.KubeletFindings(ctx, env)
	}
	if members == nil && node.UnlessLocalEtcd(env) == "" {
		var err error
		if members, err = env.Etcd.Health(ctx); err != nil {
			found = notChecked(err)
		}
	}
	return append(found, hostFindings(ctx, env, members)...)
}

func notChecked(err error) []fault.Finding {
	return []fault.Finding{fault.NewFinding(breakages.NotChecked, fault.Unasked, fault.Remedy(err), "%v", err)}
}

// ownBreakages finds breakages by the upgrade in this host's kubelet and control plane.
func ownBreakages(ctx context.Context, env *step.Env) []fault.Finding {
	own := cluster.NewNode(env.Config.Name)
	found, err := env.Cluster.Get(ctx, own)
	if err != nil {
		return notChecked(err)
	}
	if !found {
		return notChecked(errors.Errorf("the cluster has no Node %s, which would show this kubelet's version", env.Config.Name))
	}
	here, err := inventoryHere(env)
	if err != nil {
		return notChecked(err)
	}
	info := own.Status.NodeInfo
	versions := upgrading.NodeVersions{Name: own.Name, Kubelet: info.KubeletVersion, Runtime: info.ContainerRuntimeVersion}
	if env.Config.ControlPlane {
		versions.APIServer = node.RunningVersion(env)
	}
	return append(unmarkedHere(env, []corev1.Node{*own}), here.Check(ctx, versions, etcdVersions(env.Config))...)
}

// inventoryHere returns this host's part of the inventory, with the files that the upgrade writes on it.
func inventoryHere(env *step.Env) (*inventory.Here, error) {
	settings, err := kubelet.NextConfig(env)
	if err != nil {
		return nil, err
	}
	here := &inventory.Here{Host: env.Host, Node: env.Config, Wanted: map[string][]byte{}, Kubelet: settings}
	if !env.Config.ControlPlane {
		return here, nil
	}
	list, err := node.Replacements(env)
	for _, m := range list {
		here.Wanted[m.Name] = m.Wanted
	}
	return here, err
}

// etcdVersions maps a minor release to the version that an upgrade to it gives etcd; it's nil if etcd isn't upgraded.
func etcdVersions(n *config.Node) func(minor string) string {
	if !n.Upgrade.Etcd {
		return nil
	}
	return n.Cluster.EtcdVersion
}

// PlanQuestions returns the checks of `upgrade plan`: breakages by the upgrade and, on a control plane, local obstacles. first is for this
// control plane's first step on the way, as the patches are; nil elsewhere.
func PlanQuestions(ctx context.Context, env, first *step.Env, state *upgrading.State, there *inventory.Inventory) []preflight.Check {
	n, except, here := env.Config, "", first != nil
	if here {
		except = n.Name // an interrupted upgrade may have left it not ready
	}
	list := []preflight.Check{
		upgrading.SkewQuestion(n.Upgrade, state.Nodes, true),
		{Name: node.NodesReadyCheck, Run: func(context.Context, preflight.View) []fault.Finding { return node.NodesNotReady(state.Hosts, except) }},
	}
	list = append(list, etcdTagQuestions(env)...)
	found := append(strayPods(state), findBreakages(n, state, there)...)
	if here {
		found = append(found, unmarkedHere(env, state.Hosts)...)
	}
	if unseen := otherControlPlanes(n, state, here); len(unseen) > 0 {
		found = append(found, fault.NewFinding(breakages.NotChecked, fault.Unasked, "run `slipway upgrade plan` there as root",
			"files, edits of the static Pods, certificates, images and disk space were not checked on %s", strings.Join(unseen, ", ")))
	}
	if here {
		list = append(list, preflight.Check{Name: edits.StaticPodCheck, Run: func(ctx context.Context, _ preflight.View) []fault.Finding {
			return edits.StaticPodFindings(ctx, first)
		}},
			node.NewPatchedImagesCheck(first),
			kubelet.NewKernelCheck(first),
			etcdQuorum(first, func(context.Context, *step.Env) error { return knownPeers(env, there.Members) }))
		found = append(found, hostFindings(ctx, first, there.Members)...)
	}
	return append(list, asQuestions(found)...)
}

// knownPeers reports why the other members can't do without this node's; nil if none could be asked, a finding of its own.
func knownPeers(env *step.Env, members []etcd.Health) error {
	if _, found := thisnode.EtcdMember(env.Host, env.Config.Paths); !found || len(members) == 0 {
		return nil
	}
	return node.CheckQuorumOfOthers(members, node.OwnPeerURL(env, etcd.MembersOf(members)))
}

func otherControlPlanes(n *config.Node, state *upgrading.State, here bool) []string {
	var names []string
	for _, node := range state.Nodes {
		if node.ControlPlane && (!here || node.Name != n.Name) {
			names = append(names, node.Name)
		}
	}
	return names
}

// Inventory collects everything an upgrade can break, from s and from this host, which is a control plane.
func Inventory(ctx context.Context, env *step.Env, state *upgrading.State, s inventory.Sources) (*inventory.Inventory, error) {
	here, err := inventoryHere(env)
	if err != nil {
		return nil, err
	}
	s.State, s.Here = state, here
	return inventory.Collect(ctx, s)
}

// findBreakages finds what the upgrade of a cluster to n's version breaks, and what couldn't be checked.
func findBreakages(n *config.Node, state *upgrading.State, there *inventory.Inventory) []fault.Finding {
	return append(there.Check(state.Oldest(), n.Cluster.KubernetesVersion, etcdVersions(n)), corefileFindings(n, state)...)
}

// corefileFindings warns that the upgrade leaves CoreDNS alone if it's newer, or if Slipway can't migrate its Corefile to the new version.
func corefileFindings(n *config.Node, state *upgrading.State) []fault.Finding {
	from, to := corefile.Version("coredns:"+state.CoreDNS), corefile.Version(n.Image("coredns"))
	if state.CoreDNS == "" {
		return nil
	}
	if err := addon.KeptCoreDNS(n, state.Corefile, from, to); err != nil {
		remedy := cmp.Or(fault.Remedy(err), "see what CoreDNS "+to+" needs (https://coredns.io), and change the Corefile in ConfigMap kube-system/coredns")
		return []fault.Finding{fault.NewFinding(addon.UnknownPlugins, fault.Warning, remedy, "the upgrade keeps CoreDNS %s and its Corefile: %v", state.CoreDNS, err)}
	}
	return nil
}

// asQuestions makes a check of each kind of finding, so users can ignore it by name.
func asQuestions(found []fault.Finding) []preflight.Check {
	var list []preflight.Check
	for _, f := range found {
		if slices.ContainsFunc(list, func(q preflight.Check) bool { return q.Name == f.Name }) {
			continue
		}
		same := slices.DeleteFunc(slices.Clone(found), func(other fault.Finding) bool { return other.Name != f.Name })
		list = append(list, preflight.Check{Name: f.Name, Description: "see docs/upgrade-breakages.md", Run: func(context.Context, preflight.View) []fault.Finding { return same }})
	}
	return list
}
