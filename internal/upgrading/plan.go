// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/manifests"
	"github.com/slipway-k8s/slipway/preflight"
)

// Plan is the output of `upgrade plan`. It has the fields of kubeadm's UpgradePlan, and also ClusterVersion, Nodes, and in each
// upgrade Version, Findings, Steps and Changes. docs/machine-output.md describes it.
type Plan struct {
	metav1.TypeMeta `json:",inline"`

	Upgrades []Upgrade       `json:"availableUpgrades"`
	Configs  []ConfigVersion `json:"configVersions"`
	// ClusterVersion is the version in the cluster's configuration.
	ClusterVersion string         `json:"clusterVersion"`
	Nodes          []NodeVersions `json:"nodes"`
}

func (p *Plan) DeepCopyObject() runtime.Object { return new(*p) }

// Upgrade is a version to which the cluster can be upgraded.
type Upgrade struct {
	Description string             `json:"description"`
	Components  []ComponentUpgrade `json:"components"`
	Version     string             `json:"version"`
	Findings    []fault.Finding    `json:"findings"`
	Steps       []Step             `json:"steps"`
	// Patches keep edits in the static Pods of this host: files for the directory named by --patches.
	Patches []PatchFile `json:"patches,omitempty"`
	// DoubtfulPatches keep possible edits, which may also come from an earlier ClusterConfiguration or ConfigMap kubelet-config.
	DoubtfulPatches []PatchFile `json:"doubtfulPatches,omitempty"`
	// Changes lists the changes `upgrade apply` would make on this host; nil unless asked for.
	Changes []Change `json:"changes,omitempty"`
}

// ComponentUpgrade is a row of an upgrade. Node is empty for shared components.
type ComponentUpgrade struct {
	Name    string `json:"name"`
	Current string `json:"currentVersion"`
	New     string `json:"newVersion"`
	Node    string `json:"nodeName,omitempty"`
}

// ConfigVersion is the API of a component's stored configuration.
type ConfigVersion struct {
	Group     string `json:"group"`
	Current   string `json:"currentVersion"`
	Preferred string `json:"preferredVersion"`
	Manual    bool   `json:"manualUpgradeRequired"`
}

type PatchFile struct {
	Name    string `json:"fileName"`
	Content string `json:"content"`
}

// Hides reports whether secrets are missing from the patch.
func (f PatchFile) Hides() bool { return strings.Contains(f.Content, "[redacted]") }

// Change is a change to a file or an object, as a unified diff.
type Change struct {
	Name string `json:"name"`
	Diff string `json:"diff"`
}

// The rows of a plan besides static Pods', with kubeadm's names. RowProgram is the Kubernetes version this program was made for.
const (
	rowKubelet   = "kubelet"
	rowKubeProxy = "kube-proxy"
	rowCoreDNS   = "CoreDNS"
	RowProgram   = "kubeadm"
)

// NewPlan returns a plan without upgrades. apiVersion is the plan's own.
func (s *State) NewPlan(apiVersion string) *Plan {
	p := &Plan{
		TypeMeta:       metav1.TypeMeta{APIVersion: apiVersion, Kind: "UpgradePlan"},
		ClusterVersion: s.Configured, Upgrades: []Upgrade{}, Nodes: append([]NodeVersions{}, s.Nodes...), Configs: []ConfigVersion{},
	}
	for _, c := range []ConfigVersion{
		{Group: "kubeproxy.config.k8s.io", Current: s.KubeProxyConfig, Preferred: "v1alpha1"},
		{Group: "kubelet.config.k8s.io", Current: s.KubeletConfig, Preferred: "v1beta1"},
	} {
		if c.Current != "" {
			c.Manual = c.Current != c.Preferred
			p.Configs = append(p.Configs, c)
		}
	}
	return p
}

// Upgrade returns an upgrade without findings, except that an error of Steps becomes a finding.
func (s *State) Upgrade(o Offer, r Route) (*Upgrade, error) {
	r.Version = o.Version
	desired, _, err := config.LoadCluster(s.Stored, nil, nil, nil, config.Options{Version: o.Version, AnyVersion: true, Placeholders: true})
	if err != nil {
		return nil, err
	}
	u := &Upgrade{Description: o.Description, Version: o.Version, Findings: []fault.Finding{}, Steps: []Step{}}
	u.Components = s.rows(desired, r.Etcd)
	steps, err := s.Steps(r)
	if err != nil {
		u.Findings = append(u.Findings, fault.NewFinding(SkewCheck, fault.Error, fault.Remedy(err), "%v", err))
		return u, nil
	}
	u.Steps = append(u.Steps, steps...)
	return u, nil
}

// rows returns kubeadm's order: the kubelets, the control planes, shared components, etcd.
func (s *State) rows(desired *config.Node, etcd bool) []ComponentUpgrade {
	target := desired.Cluster.KubernetesVersion
	var rows []ComponentUpgrade
	for _, n := range s.Nodes {
		rows = append(rows, ComponentUpgrade{rowKubelet, n.Kubelet, target, n.Name})
	}
	var members []ComponentUpgrade
	for _, c := range s.Components {
		if c.Name == manifests.EtcdName {
			members = append(members, ComponentUpgrade{c.Name, c.Version, manifests.TagOf(desired.Image(c.Name)), c.Node})
			continue
		}
		rows = append(rows, ComponentUpgrade{c.Name, c.Version, target, c.Node})
	}
	if s.KubeProxy != "" {
		rows = append(rows, ComponentUpgrade{rowKubeProxy, strings.TrimPrefix(s.KubeProxy, "v"), target, ""})
	}
	if s.CoreDNS != "" {
		rows = append(rows, ComponentUpgrade{rowCoreDNS, s.CoreDNS, manifests.TagOf(desired.Image("coredns")), ""})
	}
	rows = append(rows, ComponentUpgrade{RowProgram, config.DefaultKubernetesVersion, config.DefaultKubernetesVersion, ""})
	if etcd {
		rows = append(rows, members...)
	}
	return rows
}

// SkewCheck is the name of the check of Refusals.
const SkewCheck = "KubernetesVersion"

// AddReport adds errors, warnings, and checks that couldn't look.
func (u *Upgrade) AddReport(r preflight.Report) {
	u.Findings = append(u.Findings, slices.Concat(r[fault.Error], r[fault.Warning], r[fault.Unasked])...)
}

// SkewQuestion wraps Refusals as a preflight check, which users can ignore. A plan leaves out problems that its steps solve.
func SkewQuestion(u *config.Upgrade, nodes []NodeVersions, plan bool) preflight.Check {
	return preflight.Check{Name: SkewCheck, Description: "the cluster may be upgraded to this version", Run: func(context.Context, preflight.View) []fault.Finding {
		var found []fault.Finding
		for _, r := range Refusals(u, nodes) {
			if plan && r.Stepwise {
				continue
			}
			if r.Forceable && u.Force {
				r.Severity = fault.Warning
			}
			found = append(found, r.Finding)
		}
		return found
	}}
}
