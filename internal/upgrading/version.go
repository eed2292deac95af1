// SPDX-FileCopyrightText: The Slipway Authors
// SPDX-License-Identifier: Apache-2.0

package upgrading

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/slipway-k8s/slipway/internal/config"
	"github.com/slipway-k8s/slipway/internal/fault"
	"github.com/slipway-k8s/slipway/internal/releases"
)

// controlPlaneSkew is how many minor versions the API servers of a cluster may be apart, and how many an upgrade moves:
// https://kubernetes.io/releases/version-skew-policy/
const controlPlaneSkew = 1

// NodeVersions holds a node's versions, with a leading v; empty if unknown.
type NodeVersions struct {
	Name string `json:"name"`
	// ControlPlane reports whether the node has an API server. APIServer is the version of its image.
	ControlPlane bool   `json:"controlPlane"`
	APIServer    string `json:"apiServerVersion,omitempty"`
	Kubelet      string `json:"kubeletVersion"`
	// Runtime comes from the kubelet, such as containerd://2.2.0.
	Runtime string `json:"containerRuntimeVersion"`
}

// Refusal is a reason not to upgrade a cluster to a version.
type Refusal struct {
	fault.Finding
	// Forceable reports whether `upgrade apply --force` goes on in spite of it.
	Forceable bool
	// Stepwise reports whether several steps solve it, as State.Steps lists them.
	Stepwise bool
}

// Refusals returns the reasons not to upgrade a cluster with these nodes from u.From to u.Version, both exact. A partly upgraded
// node counts with its current versions, so an interrupted upgrade can go on.
func Refusals(u *config.Upgrade, nodes []NodeVersions) []Refusal {
	target, err := version.ParseSemantic(u.Version)
	if err != nil {
		return []Refusal{refuse("invalid version %q (expected something like %s)", u.Version, config.DefaultKubernetesVersion).remedy("name another version")}
	}
	var found []Refusal
	if newest := version.MustParseSemantic(config.DefaultKubernetesVersion); releases.Minor(newest).LessThan(releases.Minor(target)) {
		found = append(found, refuse("%s is newer than Kubernetes %s, the newest that this release of slipway knows", u.Version, releases.Minor(newest)).
			remedy("use a release of slipway for Kubernetes %s", releases.Minor(target)))
	}
	found = append(found, prereleaseRefusals(u, target)...)
	found = append(found, controlPlaneRefusals(u, target, nodes)...)
	return append(found, kubeletRefusals(u, target, nodes)...)
}

func prereleaseRefusals(u *config.Upgrade, target *version.Version) []Refusal {
	kind, _, _ := strings.Cut(target.PreRelease(), ".")
	switch {
	case kind == "" || u.Experimental || kind == "rc" && u.Prereleases:
		return nil
	case kind == "rc":
		return []Refusal{refuse("%s is a release candidate", u.Version).
			remedy("choose a release, or allow this one with --allow-release-candidate-upgrades").force()}
	}
	return []Refusal{refuse("%s is a pre-release (%s)", u.Version, kind).
		remedy("choose a release, or allow this one with --allow-experimental-upgrades").force()}
}

// controlPlaneRefusals compares the target with the control planes' versions, and with the cluster's configuration.
func controlPlaneRefusals(u *config.Upgrade, target *version.Version, nodes []NodeVersions) []Refusal {
	var found []Refusal
	who := byVersion(nodes, NodeVersions.apiServer)
	if len(who) == 0 { // nobody could be asked
		who = []versionGroup{{u.From, "the cluster's configuration"}}
	}
	var known []string
	for _, group := range who {
		have, err := version.ParseSemantic(group.version)
		if err != nil {
			found = append(found, refuse("cannot tell which version of the API server runs on %s", group.nodes).
				remedy("`kubectl -n kube-system get pods -l component=kube-apiserver -o wide` has to show its Pod, whose image needs a version as its tag; if the Pod is missing, `slipway diagnose` on that node says what is wrong"))
			continue
		}
		known = append(known, group.version)
		if r := stepRefusal(u, target, have, group.nodes); r != nil {
			found = append(found, *r)
		}
	}
	if oldest, newest := releases.Span(known); oldest != nil && releases.Minor(oldest.OffsetMinor(controlPlaneSkew)).LessThan(releases.Minor(newest)) {
		found = append(found, refuse("the API servers of this cluster are more than one minor version apart (%s and %s)", releases.Minor(oldest), releases.Minor(newest)).
			remedy("first bring all control planes to one minor version").stepwise())
	}
	return found
}

// stepRefusal compares the target with a version that some control planes have.
func stepRefusal(u *config.Upgrade, target, have *version.Version, who string) *Refusal {
	next := releases.Minor(have.OffsetMinor(controlPlaneSkew))
	var r Refusal
	switch {
	case next.LessThan(releases.Minor(target)):
		r = refuse("%s is more than one minor version above v%s, the version of %s", u.Version, have, who).
			remedy("first upgrade all control planes to %s; `upgrade plan %s` lists each step", next, u.Version).stepwise()
	case releases.Minor(target).LessThan(releases.Minor(have)):
		r = refuse("%s is older than v%s, the version of %s, and a control plane cannot go back to an older minor version", u.Version, have, who).
			remedy("choose %s or newer; `upgrade rollback` undoes an upgrade", releases.Minor(have))
	case target.LessThan(have):
		r = refuse("%s is older than v%s, the version of %s", u.Version, have, who).
			remedy("choose v%s or newer, or use --force", have).force()
	default:
		return nil
	}
	return &r
}

func kubeletRefusals(u *config.Upgrade, target *version.Version, nodes []NodeVersions) []Refusal {
	var found []Refusal
	for _, group := range byVersion(nodes, func(n NodeVersions) (string, bool) { return n.Kubelet, true }) {
		have, err := version.ParseSemantic(group.version)
		switch oldest := releases.Minor(target.OffsetMinor(-releases.KubeletSkew)); {
		case err != nil:
			found = append(found, refuse("cannot tell which version the kubelet of %s has", group.nodes).
				remedy("look at `kubectl get nodes -o wide`; delete the Node object of a host that is gone").force())
		case releases.Minor(have).LessThan(oldest):
			found = append(found, refuse("the kubelet of %s (v%s) is too old for a control plane of %s, which works with %s and newer", group.nodes, have, releases.Minor(target), oldest).
				remedy("first upgrade it to %s or newer", oldest).force().stepwise())
		case releases.Minor(target).LessThan(releases.Minor(have)):
			found = append(found, refuse("the kubelet of %s (v%s) is newer than %s, and a kubelet must not be newer than its control plane", group.nodes, have, u.Version).
				remedy("choose %s or newer, or install an older kubelet there", releases.Minor(have)).force())
		}
	}
	return found
}

// versionGroup names the nodes with one version, for a message.
type versionGroup struct{ version, nodes string }

// byVersion groups the nodes for which pick wants a version, in the order of the nodes.
func byVersion(nodes []NodeVersions, pick func(NodeVersions) (string, bool)) []versionGroup {
	var groups []versionGroup
	for _, n := range nodes {
		v, wanted := pick(n)
		if !wanted {
			continue
		}
		i := slices.IndexFunc(groups, func(g versionGroup) bool { return g.version == v })
		if i < 0 {
			groups = append(groups, versionGroup{version: v, nodes: n.Name})
			continue
		}
		groups[i].nodes += ", " + n.Name
	}
	return groups
}

func (n NodeVersions) apiServer() (v string, wanted bool) { return n.APIServer, n.ControlPlane }

func refuse(format string, args ...any) Refusal {
	return Refusal{Finding: fault.NewFinding("", fault.Error, "", format, args...)}
}

func (r Refusal) remedy(format string, args ...any) Refusal {
	r.Remedy = fmt.Sprintf(format, args...)
	return r
}

func (r Refusal) stepwise() Refusal {
	r.Stepwise = true
	return r
}

func (r Refusal) force() Refusal {
	r.Forceable = true
	return r
}

// Offer is a version to which a cluster can be upgraded, described in kubeadm's words.
type Offer struct{ Version, Description string }

// Offers returns the next versions among the releases this program knows: the newest patch of the cluster's minor version, and of
// the next. It never offers a control plane an older version.
func (s *State) Offers() []Offer {
	oldest, newest := s.span()
	if oldest == nil {
		return nil
	}
	var offers []Offer
	for i, description := range []string{series(oldest), "stable version"} {
		minor := oldest.OffsetMinor(i)
		patch := config.NewestPatch(int(minor.Minor()))
		if minor.Major() != 1 || patch == "" {
			continue
		}
		v := version.MustParseSemantic(patch)
		if oldest.LessThan(v) && !v.LessThan(newest) {
			offers = append(offers, Offer{patch, description})
		}
	}
	return offers
}

// Named returns the offer of a version the user names, or nil if everything runs with it or newer.
func (s *State) Named(target string) *Offer {
	oldest, _ := s.span()
	wanted, err := version.ParseSemantic(target)
	if oldest == nil || err != nil || !oldest.LessThan(wanted) && !s.anyKubeletOlder(wanted) {
		return nil
	}
	return &Offer{target, series(oldest)}
}

// series describes a version as kubeadm does.
func series(v *version.Version) string {
	return fmt.Sprintf("version in the v%s series", releases.Minor(v))
}

// Oldest returns the version of the oldest API server; empty if unknown.
func (s *State) Oldest() string {
	oldest, _ := s.span()
	if oldest == nil {
		return ""
	}
	return "v" + oldest.String()
}

// span returns the oldest and newest version among the API servers and the cluster's configuration; nil if none is known.
func (s *State) span() (oldest, newest *version.Version) {
	known := []string{s.Configured}
	for _, n := range s.Nodes {
		if n.ControlPlane {
			known = append(known, n.APIServer)
		}
	}
	return releases.Span(known) // Refusals reports the others
}

func (s *State) anyKubeletOlder(target *version.Version) bool {
	for _, n := range s.Nodes {
		if v, err := version.ParseSemantic(n.Kubelet); err == nil && v.LessThan(target) {
			return true
		}
	}
	return false
}
